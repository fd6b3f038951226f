"""Writes data sets with the packages of Python into a folder, and beside each NAME.expected: its samples as these
packages read them (trainer/data/formats/images_python_test.cc says how). A package that is not installed is left out, and named.

    write_images.py FOLDER
"""
import io
import pathlib
import struct
import sys
import tarfile

import numpy
from PIL import Image

FOLDER = pathlib.Path(sys.argv[1])
random = numpy.random.default_rng(7)


def picture(mode, height, width):
    """Colours that change slowly, as in photographs, and some noise."""
    y, x = numpy.mgrid[0:height, 0:width]
    channels = [numpy.sin(y / (5 + c) + c) * 60 + numpy.cos(x / (7 + c)) * 60 + 128 for c in range(len(mode))]
    noise = random.integers(-8, 8, (height, width, len(mode)))
    pixels = numpy.clip(numpy.stack(channels, axis=2) + noise, 0, 255).astype(numpy.uint8)
    return Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode)


def encoded(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def images():
    """(extension, bytes) of every kind that we read."""
    rgb = picture("RGB", 45, 61)
    yield "jpg", encoded(rgb, format="JPEG", quality=90)
    yield "jpg", encoded(rgb, format="JPEG", quality=75, subsampling=0)
    yield "jpg", encoded(picture("RGB", 64, 33), format="JPEG", progressive=True)
    yield "jpeg", encoded(picture("L", 20, 30), format="JPEG")
    yield "jpeg", encoded(picture("CMYK", 24, 40), format="JPEG", quality=95)
    yield "png", encoded(rgb, format="PNG")
    yield "png", encoded(picture("L", 9, 8), format="PNG")
    yield "png", encoded(picture("RGBA", 17, 19), format="PNG")
    yield "png", encoded(rgb.quantize(31), format="PNG")
    yield "png", encoded(picture("L", 13, 21).convert("1"), format="PNG")


def sample(pixels, label, text=""):
    """`pixels`: [height, width, 3]."""
    text = text.encode()
    return (struct.pack("<qqq", pixels.shape[0], pixels.shape[1], label)
            + numpy.ascontiguousarray(pixels.transpose(2, 0, 1)).tobytes() + struct.pack("<q", len(text)) + text)


def decoded(data):
    return numpy.array(Image.open(io.BytesIO(data)).convert("RGB"))  # alpha is dropped


def expect(name, samples):
    (FOLDER / f"{name}.expected").write_bytes(b"".join(samples))


def image_folder():
    samples = []
    for label, name in enumerate(["a", "a b", "c"]):
        for number, (extension, data) in enumerate(images()):
            path = FOLDER / "image_folder" / name / f"{number:02}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            samples.append(sample(decoded(data), label))
    expect("image_folder", samples)


def tar(name, form, long_names):
    """As tarfile writes it: names of more than 100 bytes have headers of their own."""
    samples = []
    (FOLDER / name).mkdir()
    prefix = "x" * 60 + "/" + ("y" * 120 if long_names else "y" * 60) + "/"
    for shard in range(2):
        with tarfile.open(FOLDER / name / f"{shard}.tar", "w", format=form) as archive:
            for number, (extension, data) in enumerate(images()):
                text = f"sample {number} caf\u00e9"
                for kind, content in [(extension, data), ("cls", f"{number}\n".encode()), ("txt", text.encode())]:
                    entry = tarfile.TarInfo(f"{prefix}{number:04}.{kind}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
                samples.append(sample(decoded(data), number, text))
    expect(name, samples)


def webdataset():
    import webdataset as package
    path = FOLDER / "webdataset"
    path.mkdir()
    with package.ShardWriter(str(path / "train-%04d.tar"), maxcount=6, verbose=0) as writer:
        for number, (extension, data) in enumerate(images()):
            writer.write({"__key__": f"{number:05}", extension: data, "cls": number, "txt": f"text {number}"})
    samples = []
    for item in package.WebDataset([str(shard) for shard in sorted(path.iterdir())], shardshuffle=False):
        data = next(item[extension] for extension in ("jpg", "jpeg", "png") if extension in item)
        samples.append(sample(decoded(data), int(item["cls"]), item["txt"].decode()))
    expect("webdataset", samples)


def tfrecord():
    import tensorflow
    path = FOLDER / "tfrecord"
    path.mkdir()
    train = tensorflow.train
    for shard in range(2):
        with tensorflow.io.TFRecordWriter(str(path / f"train.tfrecord-{shard:05}-of-00002")) as writer:
            for number, (extension, data) in enumerate(images()):
                writer.write(train.Example(features=train.Features(feature={
                    "image": train.Feature(bytes_list=train.BytesList(value=[data])),
                    "label": train.Feature(int64_list=train.Int64List(value=[number - 3])),
                    "text": train.Feature(bytes_list=train.BytesList(value=[f"text {number}".encode()])),
                    "box": train.Feature(float_list=train.FloatList(value=[0.5, 1.5])),
                })).SerializeToString())
    features = {name: tensorflow.io.FixedLenFeature([], kind)
                for name, kind in [("image", "string"), ("label", "int64"), ("text", "string")]}
    samples = []
    for record in tensorflow.data.TFRecordDataset([str(shard) for shard in sorted(path.iterdir())]):
        example = tensorflow.io.parse_single_example(record, features)
        samples.append(sample(decoded(example["image"].numpy()), int(example["label"]),
                              example["text"].numpy().decode()))
    expect("tfrecord", samples)


image_folder()
tar("tar_ustar", tarfile.USTAR_FORMAT, False)
tar("tar_gnu", tarfile.GNU_FORMAT, True)
tar("tar_pax", tarfile.PAX_FORMAT, True)
for write in [webdataset, tfrecord]:
    try:
        write()
    except ImportError as error:
        print(f"left out: {error}", flush=True)
