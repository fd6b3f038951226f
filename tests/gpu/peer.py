"""A network of the model zoo as one writes it with PyTorch: all data on the device, shuffled anew every epoch, plain SGD.
Prints the time of a step, and how many values the network has.

Usage: peer.py MODEL --device DEVICE --shape EXTENT,... --classes N --samples N --batch N --precision fp32|tf32|bf16 --threads N
               --warm-up SECONDS --seconds SECONDS
"""

import argparse
import contextlib
import json
import time

import torch
from torch import nn


def acoustic(shape, classes):
    layers = [nn.Flatten()]
    width = shape[0] * shape[1]
    for _ in range(4):
        layers += [nn.Linear(width, 2560), nn.Sigmoid()]
        width = 2560
    return nn.Sequential(*layers, nn.Linear(width, classes))


def lenet(shape, classes):
    return nn.Sequential(nn.Conv2d(shape[0], 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
                         nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, classes))


def double_convolution(channels, middle, filters):
    return [nn.Conv2d(channels, middle, 3, padding=1), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]


class Beside(nn.Module):
    """x and inner(x), side by side."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.cat([x, self.inner(x)], 1)


def below(level, levels, channels):
    deepest = level == levels
    filters = channels if deepest else 2 * channels
    inner = [nn.MaxPool2d(2), *double_convolution(channels, filters, filters)]
    if not deepest:
        inner += below(level + 1, levels, filters)
    inner.append(nn.Upsample(scale_factor=2))
    return [Beside(nn.Sequential(*inner)), *double_convolution(2 * channels, channels, channels if level == 1 else channels // 2)]


def unet(shape, _):
    return nn.Sequential(*double_convolution(shape[0], 64, 64), *below(1, 4, 64), nn.Conv2d(64, 1, 1))


NETWORKS = {"acoustic": acoustic, "lenet": lenet, "unet": unet}


def make_data(options, device):
    """Inputs and targets as the data sets of Downpour have them; what they are does not matter for the time."""
    shape = (options.samples, *options.shape)
    if options.model == "lenet":
        inputs = torch.randint(256, shape, dtype=torch.uint8, device=device)
    else:
        inputs = torch.rand(shape, device=device)
    if options.classes == 0:
        return inputs, torch.rand((options.samples, 1, *options.shape[1:]), device=device)
    return inputs, torch.randint(options.classes, (options.samples,), device=device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=NETWORKS)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--shape", type=lambda text: [int(extent) for extent in text.split(",")], required=True)
    parser.add_argument("--classes", type=int, required=True, help="0: an image is to be predicted")
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    if options.samples < options.batch:
        parser.error(f"--samples: got {options.samples}, expected at least those of a batch, {options.batch}")
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    network = NETWORKS[options.model](options.shape, options.classes).to(device)
    # As tensor cores take it.
    layout = torch.contiguous_format if options.precision == "fp32" else torch.channels_last
    if len(options.shape) == 3:
        network = network.to(memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    loss = nn.CrossEntropyLoss() if options.classes else nn.MSELoss()
    inputs, targets = make_data(options, device)
    autocast = torch.autocast(options.device, torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext()

    order, at = None, 0

    def step():
        nonlocal order, at
        if order is None or at + options.batch > options.samples:
            order, at = torch.randperm(options.samples, device=device), 0
        chosen = order[at:at + options.batch]
        at += options.batch
        batch = inputs[chosen]
        if batch.dtype == torch.uint8:
            batch = batch.float().div_(255)
        if batch.dim() == 4:
            batch = batch.contiguous(memory_format=layout)
        optimizer.zero_grad()
        with autocast:
            output = network(batch)
        loss(output.float(), targets[chosen]).backward()
        optimizer.step()

    def steps_within(seconds):
        """And how long they took, which is a little more."""
        synchronize()
        begun, count = time.monotonic(), 0
        while count < 3 or time.monotonic() - begun < seconds:
            step()
            count += 1
            if count % 8 == 0:
                synchronize()  # or the clock would be that of who asks for the work
        synchronize()
        return count, time.monotonic() - begun

    steps_within(options.warm_up)
    count, seconds = steps_within(options.seconds)
    values = [*network.parameters(), *(buffer for buffer in network.buffers() if buffer.is_floating_point())]
    print(json.dumps({"torch": torch.__version__, "milliseconds": seconds / count * 1e3, "steps": count,
                      "values": sum(value.numel() for value in values)}))


if __name__ == "__main__":
    main()
