#!/usr/bin/env python3
"""Broken spec.model sections: `downpour run` refuses each before anything is started, with the path of what is wrong,
what was found and what is expected, and leaves no folder; `downpour validate` says the same.

Usage: broken_models.py --downpour PROGRAM [--plugins FOLDER]
With the folder of the test plug-ins it is those that a worker is asked about; without, those that a plan finds.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

TIMEOUT_SECONDS = 60

IMAGES = "{format: Synthetic, synthetic: {kind: Images, shape: [1, 28, 28]}}"
PHOTOS = "{format: Synthetic, synthetic: {kind: Images, shape: [3, 30, 30], classes: 5}}"
TEXT = "{format: Synthetic, synthetic: {kind: Text, classes: 4}}"
SPEECH = "{format: Synthetic, synthetic: {kind: Speech, classes: 16}}"
RADAR = "{format: Synthetic, synthetic: {kind: Radar, shape: [12, 20, 20]}}"

MANIFEST = """apiVersion: training.downpour.dev/v1alpha1
kind: TrainingJob
metadata: {{name: broken}}
spec:
  parameterServer: {{replicas: 1}}
  model: {model}
  dataset: {dataset}
"""


def layers(*text):
    return "{layers: [" + ", ".join(text) + "]}"


# The model, the data set, and how the error begins.
BROKEN = [
    # Networks of the zoo.
    ("{name: LeNet, parameters: {hidden: 5}}", IMAGES,
     "spec.model.parameters.hidden: LeNet has no such size; it has none"),
    ("{name: MLP, parameters: {hiden: 5}}", IMAGES,
     "spec.model.parameters.hiden: MLP has no such size; it has hidden"),
    ("{name: MLP, parameters: {hidden: 0}}", IMAGES,
     "spec.model.parameters.hidden: expected an integer from 1 to 65536, not 0"),
    ("{name: MLP, parameters: {hidden: 1.5}}", IMAGES,
     "spec.model.parameters.hidden: expected an integer from 1 to 65536, not 1.5"),
    ("{name: MLP, parameters: {hidden: 1000000000000}}", IMAGES,
     "spec.model.parameters.hidden: expected an integer from 1 to 65536, not 1000000000000"),
    ("{name: MLP, parameters: {hidden: \"64\"}}", IMAGES,
     "spec.model.parameters.hidden: expected an integer from 1 to 65536, not \"64\""),
    ("{name: MLP, parameters: {hidden: 18446744073709551616}}", IMAGES,
     "spec.model.parameters.hidden: expected an integer from 1 to 65536, not 1.8446744073709552e+19"),
    ("{name: LeNet}", TEXT,
     "spec.model: LeNet cannot take words: i32 [*] below 10000: layers[0] (conv2d conv1): gets integers [*], "
     "needs [channels, height, width], no smaller than the kernel with its padding"),
    ("{name: BiLSTM}", IMAGES,
     "spec.model: BiLSTM cannot take image: u8 [1, 28, 28]: layers[0] (embedding embedding): gets [1, 28, 28], "
     "needs a list of integers [length], all of them below its vocabulary"),
    ("{name: BiLSTM}", TEXT,
     "spec.model.loss: BinaryCrossEntropy needs one output and a label of two classes, or fp32 targets in the "
     "output's shape; the network makes [1] and the target of the data set is label: i64 [] below 4"),
    ("{name: AlexNet}", IMAGES,
     "spec.model: AlexNet cannot take image: u8 [1, 28, 28]: layers[5] (maxPool2d maxPool2d2): gets [256, 2, "
     "2], needs [channels, height, width], no smaller than the kernel with its padding"),
    ("{name: UNet}", RADAR,
     "spec.model: UNet cannot take frames: fp32 [12, 20, 20]: layers[6].layers[7].layers[7] (concatenate "
     "concatenate3): gets [256, 5, 5], its layers end in [256, 4, 4], needs layers that end in the shape of "
     "what comes in, but for the first dimension, which is not ragged"),
    ("{name: UNet}", IMAGES,
     "spec.model: UNet cannot take image: u8 [1, 28, 28]: layers[6].layers[7].layers[7].layers[7] (concatenate "
     "concatenate4): gets [512, 3, 3], its layers end in [512, 2, 2], needs layers that end in the shape of "
     "what comes in, but for the first dimension, which is not ragged"),
    ("{name: TextTransformer, parameters: {heads: 3}}", TEXT,
     "spec.model: TextTransformer cannot take words: i32 [*] below 10000: layers[2].layers[1] (attention "
     "block1_attention): gets [*, 128], needs a sequence [length, features], features a multiple of heads"),
    ("{name: Acoustic, loss: {type: MeanSquaredError}}", SPEECH,
     "spec.model.loss: MeanSquaredError needs an output of the target's shape and a target of fp32; the "
     "network makes [16] and the target of the data set is label: i64 [] below 16"),
    # Lists of layers.
    (layers("{type: densee, units: 10}"), IMAGES,
     "spec.model.layers[0].type: no layer \"densee\""),
    (layers("{units: 10}"), IMAGES,
     "spec.model.layers[0]: expected a map with a type, such as {type: relu}, got {\"units\":10}"),
    (layers("{type: 7}"), IMAGES,
     "spec.model.layers[0]: expected a map with a type, such as {type: relu}, got {\"type\":7}"),
    (layers("{type: dense}"), IMAGES,
     "spec.model.layers[0].units: is required by dense"),
    (layers("{type: flatten}", "{type: dense, units: 0}"), IMAGES,
     "spec.model.layers[1].units: expected an integer from 1 to 2147483648, got 0"),
    (layers("{type: flatten}", "{type: dense, units: -4}"), IMAGES,
     "spec.model.layers[1].units: expected an integer from 1 to 2147483648, got -4"),
    (layers("{type: flatten}", "{type: dense, units: ten}"), IMAGES,
     "spec.model.layers[1].units: expected an integer from 1 to 2147483648, got \"ten\""),
    (layers("{type: flatten}", "{type: dense, units: 2.5}"), IMAGES,
     "spec.model.layers[1].units: expected an integer from 1 to 2147483648, got 2.5"),
    (layers("{type: flatten}", "{type: dense, units: 10, unit: 10}"), IMAGES,
     "spec.model.layers[1].unit: dense has no such field; known: name, units"),
    (layers("{type: flatten}", "{type: dense, units: 1000000000}", "{type: dense, units: 1000}"), IMAGES,
     "spec.model.layers[1] (dense dense1): with it the model has 785000000000 parameters, expected at most "
     "68719476736"),
    (layers("{type: flatten}", "{type: dense, units: 1000000000000}"), IMAGES,
     "spec.model.layers[1].units: expected an integer from 1 to 2147483648, got 1000000000000"),
    (layers("{type: flatten}", "{type: dense, units: 7}"), IMAGES,
     "spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network makes [7] "
     "and the target of the data set is label: i64 [] below 10"),
    (layers("{type: dense, units: 10}"), IMAGES,
     "spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network makes [1, "
     "28, 10] and the target of the data set is label: i64 [] below 10"),
    (layers("{type: conv2d, filters: 8, kernel: 29}"), IMAGES,
     "spec.model.layers[0] (conv2d conv2d1): gets [1, 28, 28], needs [channels, height, width], no smaller "
     "than the kernel with its padding"),
    (layers("{type: conv2d, filters: 8, kernel: 3, padding: valid}"), IMAGES,
     "spec.model.layers[0].padding: expected an integer from 0 to 2147483648, or same, got \"valid\""),
    (layers("{type: conv2d, filters: 8, kernel: 3, stride: 0}"), IMAGES,
     "spec.model.layers[0].stride: expected an integer from 1 to 2147483648, got 0"),
    (layers("{type: flatten}", "{type: conv2d, filters: 8, kernel: 3}"), IMAGES,
     "spec.model.layers[1] (conv2d conv2d1): gets [784], needs [channels, height, width], no smaller than the "
     "kernel with its padding"),
    (layers("{type: maxPool2d, size: 40}"), IMAGES,
     "spec.model.layers[0] (maxPool2d maxPool2d1): gets [1, 28, 28], needs [channels, height, width], no "
     "smaller than the kernel with its padding"),
    (layers("{type: lstm, units: 8}"), IMAGES,
     "spec.model.layers[0] (lstm lstm1): gets [1, 28, 28], needs a sequence [length, features]"),
    (layers("{type: embedding, size: 8}"), IMAGES,
     "spec.model.layers[0] (embedding embedding1): gets [1, 28, 28], needs a list of integers [length], all of "
     "them below its vocabulary"),
    (layers("{type: flatten}", "{type: dense, units: 4}"), TEXT,
     "spec.model.layers[0] (flatten flatten1): gets integers [*], needs floats without a ragged dimension"),
    (layers("{type: embedding, size: 8, vocabulary: 10}", "{type: sequenceMean}", "{type: dense, units: 4}"), TEXT,
     "spec.model.layers[0] (embedding embedding1): gets integers [*], needs a list of integers [length], all "
     "of them below its vocabulary"),
    (layers("{type: embedding, size: 8}", "{type: attention, heads: 3}", "{type: sequenceMean}", "{type: dense, units: 4}"),
     TEXT,
     "spec.model.layers[1] (attention attention1): gets [*, 8], needs a sequence [length, features], features "
     "a multiple of heads"),
    (layers("{type: embedding, size: 8}", "{type: dense, units: 4}"), TEXT,
     "spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network makes [*, "
     "4] and the target of the data set is label: i64 [] below 4"),
    (layers("{type: flatten}", "{type: dropout, rate: 1}", "{type: dense, units: 10}"), IMAGES,
     "spec.model.layers[1].rate: expected a number from 0 to 0.999, got 1"),
    (layers("{type: flatten}", "{type: dense, name: a, units: 9}", "{type: dense, name: a, units: 10}"), IMAGES,
     "spec.model.layers[2].name: \"a\" is taken by a layer before"),
    (layers("{type: residual, layers: [{type: conv2d, filters: 3, kernel: 3}]}", "{type: flatten}",
            "{type: dense, units: 5}"), PHOTOS,
     "spec.model.layers[0] (residual residual1): gets [3, 30, 30], its layers end in [3, 28, 28], needs layers "
     "that end in the shape of the shortcut"),
    (layers("{type: residual, layers: []}"), IMAGES,
     "spec.model.layers[0].layers: expected a list of at least one layer, got []"),
    (layers("{type: residual, layers: [{type: flaten}]}"), IMAGES,
     "spec.model.layers[0].layers[0].type: no layer \"flaten\""),
    (layers("{type: batchNorm, momentum: 2}", "{type: flatten}", "{type: dense, units: 10}"), IMAGES,
     "spec.model.layers[0].momentum: expected a number from 1e-06 to 1, got 2"),
    (layers("{type: reshape, shape: [3, 100]}"), IMAGES,
     "spec.model.layers[0] (reshape reshape1): gets [1, 28, 28], needs as many values as the shape has, none ragged"),
    # Losses and metrics.
    ("{name: CifarCNN, loss: {type: Huber}}", PHOTOS,
     "spec.model.loss: Huber needs an output of the target's shape and a target of fp32; the network makes [5] "
     "and the target of the data set is label: i64 [] below 5"),
    ("{name: MLP, loss: {type: BinaryCrossEntropy}}", IMAGES,
     "spec.model.loss: BinaryCrossEntropy needs one output and a label of two classes, or fp32 targets in the "
     "output's shape; the network makes [10] and the target of the data set is label: i64 [] below 10"),
    ("{name: MLP, metrics: [MeanAbsoluteError]}", IMAGES,
     "spec.model.metrics[0]: MeanAbsoluteError needs an output of the target's shape; the network makes [10] "
     "and the target of the data set is label: i64 [] below 10"),
    ("{name: MLP, metrics: [Accuracy, BinaryAccuracy]}", IMAGES,
     "spec.model.metrics[1]: BinaryAccuracy needs an output of the target's shape; the network makes [10] and "
     "the target of the data set is label: i64 [] below 10"),
    # Data that the kind does not have.
    ("{name: MLP}", "{format: Synthetic, synthetic: {kind: Images, vocabulary: 100}}",
     "spec.dataset.synthetic.vocabulary: Images has none, got 100"),
    ("{name: MLP}", "{format: Synthetic, synthetic: {kind: Images, shape: [28, 28]}}",
     "spec.dataset.synthetic.shape: expected [channels, height, width], got [28, 28]"),
    ("{name: BiLSTM}", "{format: Synthetic, synthetic: {kind: Text, minLength: 9, maxLength: 8}}",
     "spec.dataset.synthetic.maxLength: expected at least minLength, 9, got 8"),
    ("{name: UNet}", "{format: Synthetic, synthetic: {kind: Radar, classes: 2}}",
     "spec.dataset.synthetic.classes: Radar has none, got 2"),
]

# {plugins} is the folder of the test plug-ins. What is not on this machine, `validate` does not look at.
TRIED = [
    ("{plugin: {path: /nowhere/net.so, name: Net}}", "spec.model.plugin.path: no file /nowhere/net.so"),
    ("{plugin: {path: {plugins}, name: Net}}", "spec.model.plugin.path: "),
    ("{plugin: {path: {plugins}/text.so, name: Net}}", "spec.model.plugin.path: {plugins}/text.so cannot be loaded: "),
    ("{plugin: {path: {plugins}/no_plugin.so, name: Net}}", "spec.model.plugin.path: {plugins}/no_plugin.so"),
    ("{plugin: {path: {plugins}/other_contract_plugin.so, name: Net}}", "spec.model.plugin.path: {plugins}/other_contract"),
    ("{plugin: {path: {plugins}/other_torch_plugin.so, name: Net}}", "spec.model.plugin.path: {plugins}/other_torch_plugin"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Nett}}", "spec.model.plugin.name: "),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Net, parameters: {filters: 0}}}",
     "spec.model.plugin.parameters.filters: expected at least 1, got 0"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Net, parameters: {filter: 1}}}", "spec.model.plugin.parameters.filter: "),
    ("{plugin: {path: {plugins}/test_plugin.so, name: ThrowsInConstructor}}", "spec.model.plugin.name: the constructor of ThrowsInConstructor threw: no such weather"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: ThrowsInForward}}", "spec.model.plugin.name: ThrowsInForward threw"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Doubles}}",
     "spec.model.plugin.name: Doubles: the parameter a is Double, expected Float"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Tied}}", "spec.model.plugin.name: Tied"),
    ("{plugin: {path: {plugins}/test_plugin.so, name: Crashes}}",
     "spec.model: a worker that only makes it is killed by signal 11 (Segmentation fault)"),
    ("{name: MLP, plugin: {path: {plugins}/test_plugin.so}, loss: {type: Hinge}}", "spec.model.loss.type: "),
    ("{name: MLP, plugin: {path: {plugins}/test_plugin.so}, metrics: [Accuracy, Recall]}", "spec.model.metrics[1]: "),
    ("{torchScript: {path: /nowhere/net.pt}}", "spec.model.torchScript.path: no file /nowhere/net.pt"),
    ("{torchScript: {path: {plugins}/text.so}}",
     "spec.model.torchScript.path: {plugins}/text.so is no TorchScript archive (torch.jit.save): "),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", required=True)
    parser.add_argument("--plugins", type=pathlib.Path)
    parser.add_argument("--show", action="store_true", help="print the messages")
    options = parser.parse_args()
    broken = BROKEN
    if options.plugins:
        (options.plugins / "text.so").write_text("no library\n", encoding="utf-8")
        broken = [(model.replace("{plugins}", str(options.plugins)), IMAGES, error.replace("{plugins}", str(options.plugins)))
                  for model, error in TRIED]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="downpour-broken-models-") as folder:
        manifest = pathlib.Path(folder) / "job.yaml"
        run = pathlib.Path(folder) / "run"
        for model, dataset, expected in broken:
            manifest.write_text(MANIFEST.format(model=model, dataset=dataset), encoding="utf-8")
            for command in (["validate", manifest], ["run", manifest, "--run-dir", run]):
                if command[0] == "validate" and "/nowhere/" in model:
                    continue
                process = subprocess.run([options.downpour, *command], capture_output=True, text=True, check=False,
                                         timeout=TIMEOUT_SECONDS)
                prefix = f"{manifest}: "
                lines = process.stderr.splitlines()
                message = lines[0].removeprefix(prefix) if lines else ""
                if options.show and command[0] == "validate":
                    print(f"{model}\n    {message}")
                if process.returncode == 2 and len(lines) == 1 and message.startswith(expected) and not run.exists():
                    continue
                failures += 1
                print(f"{command[0]}: model: {model}, dataset: {dataset}: exit code {process.returncode}, "
                      f"folder: {run.exists()}\n  expected: {expected}\n  found: {process.stderr}{process.stdout}")
    print(f"{len(broken)} broken models, {failures} not refused as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
