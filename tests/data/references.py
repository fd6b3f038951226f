#!/usr/bin/env python3
"""Compares the samples of every data format as Downpour's readers give them with what the reference library of the
format reads: of files that `downpour data generate` wrote, and of files that the library itself wrote. Random subsets
of the samples, ascending, descending and shuffled; bit for bit, but for JPEG, of which decoders may round differently.

    references.py --bin build/release     needs what `make data-references` installs; prints one line a format
"""
import argparse
import csv
import io
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import tempfile

import numpy
from PIL import Image

MOST_JPEG_DIFFERENCE = 2
SAMPLES = 200
DTYPES = {"u8": numpy.uint8, "i32": numpy.int32, "i64": numpy.int64, "fp32": numpy.float32}
TEXTS = ["plain", 'with "quotes"', "a, comma", " blanks ", "\u00e4\u4e2d\U0001f600", "", "two words"]


class Sample(dict):
    """Column -> an array, or the bytes of a text. `lossy`: images are decoded JPEG."""
    lossy = False


def taken(data, at):
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4:at + 4 + length], at + 4 + length


def dump(tool, format_, path, indices):
    """How many samples there are, and those of `indices`, as our reader gives them."""
    with tempfile.NamedTemporaryFile() as output:
        order = "all" if indices is None else " ".join(map(str, indices))
        subprocess.run([tool, format_, path, output.name], input=order.encode(), check=True, timeout=300)
        data = output.read()
    (count,) = struct.unpack_from("<q", data, 0)
    at, values = 8, []
    while at < len(data):
        name, at = taken(data, at)
        kind, at = taken(data, at)
        (dimensions,) = struct.unpack_from("<I", data, at)
        shape = struct.unpack_from(f"<{dimensions}q", data, at + 4)
        content, at = taken(data, at + 4 + 8 * dimensions)
        kind = kind.decode()
        values.append((name.decode(), content if kind == "text"
                       else numpy.frombuffer(content, DTYPES[kind]).reshape(shape)))
    if not indices:
        return count, []
    columns = len(values) // len(indices)
    return count, [dict(values[i:i + columns]) for i in range(0, len(values), columns)]


def difference(found, expected):
    """What is different, or nothing."""
    if set(found) != set(expected):
        return f"found the columns {sorted(found)}, expected {sorted(expected)}"
    for name, value in expected.items():
        ours = found[name]
        if isinstance(value, bytes):
            if not isinstance(ours, bytes) or ours != value:
                return f"{name}: found {ours!r}, expected {value!r}"
            continue
        value = numpy.asarray(value)
        if isinstance(ours, bytes) or ours.dtype != value.dtype or ours.shape != value.shape:
            kind = "text" if isinstance(ours, bytes) else f"{ours.dtype} {ours.shape}"
            return f"{name}: found {kind}, expected {value.dtype} {value.shape}"
        if expected.lossy and value.ndim == 3:
            largest = int(numpy.abs(ours.astype(int) - value.astype(int)).max())
            if largest > MOST_JPEG_DIFFERENCE:
                return f"{name}: a pixel differs by {largest}, expected {MOST_JPEG_DIFFERENCE} at most"
        elif ours.tobytes() != value.tobytes():
            at = next(i for i in range(ours.size) if ours.flat[i].tobytes() != value.flat[i].tobytes())
            return f"{name}: element {at}: found {ours.flat[at]!r}, expected {value.flat[at]!r}"
    return None


def compare(tool, format_, path, expected, draw):
    """How many samples were compared; raises an AssertionError where one differs."""
    count, _ = dump(tool, format_, path, None)
    assert count == len(expected) > 0, f"{format_}: {path}: found {count} samples, expected {len(expected)}"
    compared = 0
    for order in "ascending", "descending", "shuffled":
        indices = sorted(draw.sample(range(count), (count + 1) // 2))
        if order == "descending":
            indices.reverse()
        if order == "shuffled":
            indices += draw.sample(indices, len(indices) // 4)  # some of them twice
            draw.shuffle(indices)
        _, samples = dump(tool, format_, path, indices)
        assert len(samples) == len(indices), f"{format_}: {path}: found {len(samples)} samples, asked for {len(indices)}"
        for index, sample in zip(indices, samples):
            problem = difference(sample, expected[index])
            assert problem is None, f"{format_}: {path}: sample {index}, {order}: {problem}"
        compared += len(indices)
    return compared


def planes(image):
    return numpy.ascontiguousarray(numpy.array(image.convert("RGB")).transpose(2, 0, 1))


def picture(numbers, height, width):
    """Colours that change slowly, as in photographs, and some noise."""
    y, x = numpy.mgrid[0:height, 0:width]
    phase = numbers.uniform(0, 6, 3)
    pixels = numpy.stack([numpy.sin(y / (5 + c) + phase[c]) * 60 + numpy.cos(x / (7 + c)) * 60 + 128
                          for c in range(3)], axis=2)
    noise = numbers.integers(-8, 8, pixels.shape)
    return Image.fromarray(numpy.clip(pixels + noise, 0, 255).astype(numpy.uint8))


def encoded(image, format_, **options):
    file = io.BytesIO()
    image.save(file, format=format_, **options)
    return file.getvalue()


class References:
    """For each format: what its reference library writes below `folder`, and what it reads of a path."""

    def __init__(self, folder):
        self.folder = folder
        self.numbers = numpy.random.default_rng(38)

    # Every writer returns the path that a reader, ours or the reference, is given.

    def write_idx(self):
        path = self.folder / "idx"
        path.mkdir()
        images = self.numbers.integers(0, 256, (SAMPLES, 13, 17), dtype=numpy.uint8)
        labels = self.numbers.integers(0, 10, SAMPLES, dtype=numpy.uint8)
        (path / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, *images.shape) + images.tobytes())
        (path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, SAMPLES) + labels.tobytes())
        return path

    @staticmethod
    def read_idx(path):
        def array(name):
            data = (path / name).read_bytes()
            shape = numpy.frombuffer(data, ">u4", data[3], 4)
            return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(shape)
        return [Sample(image=image[None], label=numpy.int64(label))
                for image, label in zip(array("train-images-idx3-ubyte"), array("train-labels-idx1-ubyte"))]

    # The version for Python and the binary one hold the same.
    def write_cifar(self, kinds, files, name):
        path = self.folder / name
        path.mkdir()
        for file in files:
            batch = {b"data": self.numbers.integers(0, 256, (SAMPLES // 2, 3072), dtype=numpy.uint8)}
            for kind, classes in kinds:
                batch[kind] = [int(label) for label in self.numbers.integers(0, classes, SAMPLES // 2)]
            (path / f"{file}.pickle").write_bytes(pickle.dumps(batch))
            (path / f"{file}.bin").write_bytes(b"".join(
                bytes([batch[kind][i] for kind, _ in kinds]) + batch[b"data"][i].tobytes()
                for i in range(SAMPLES // 2)))
        return path

    def write_cifar10(self):
        return self.write_cifar([(b"labels", 10)], ["data_batch_1", "data_batch_2"], "cifar10")

    def write_cifar100(self):
        return self.write_cifar([(b"coarse_labels", 20), (b"fine_labels", 100)], ["train"], "cifar100")

    @staticmethod
    def read_cifar(path, kinds):
        samples = []
        for file in sorted(path.glob("data_batch_*.bin")) + sorted(path.glob("train.bin")):
            if file.with_suffix(".pickle").exists():  # as torchvision.datasets.CIFAR10 reads it
                batch = pickle.loads(file.with_suffix(".pickle").read_bytes(), encoding="bytes")
                images = batch[b"data"].reshape(-1, 3, 32, 32)
                labels = [batch[key] for key, _ in kinds]
            else:  # as the data set's page describes it
                rows = numpy.frombuffer(file.read_bytes(), numpy.uint8).reshape(-1, 3072 + len(kinds))
                images = rows[:, len(kinds):].reshape(-1, 3, 32, 32)
                labels = [rows[:, i] for i in range(len(kinds))]
            for i, image in enumerate(images):
                samples.append(Sample(image=image, **{name: numpy.int64(label[i])
                                                      for (_, name), label in zip(kinds, labels)}))
        return samples

    def read_cifar10(self, path):
        return self.read_cifar(path, [(b"labels", "label")])

    def read_cifar100(self, path):
        return self.read_cifar(path, [(b"coarse_labels", "coarse_label"), (b"fine_labels", "label")])

    def write_image_folder(self):
        path = self.folder / "image_folder"
        for i in range(60):
            image = picture(self.numbers, int(self.numbers.integers(20, 70)), int(self.numbers.integers(20, 70)))
            folder = path / ["cat", "dog", "a bird"][i % 3]
            folder.mkdir(parents=True, exist_ok=True)
            if i % 2:
                image.save(folder / f"{i:03}.png")
            else:
                image.save(folder / f"{i:03}.jpg", quality=[60, 80, 95][i % 3], progressive=i % 4 == 0)
        return path

    @staticmethod
    def read_image_folder(path):
        try:
            from torchvision.datasets import ImageFolder
            found = ImageFolder(str(path)).samples
        except ImportError:
            classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
            found = [(str(file), label) for label, name in enumerate(classes) for file in sorted((path / name).rglob("*"))]
        samples = []
        for file, label in found:
            with Image.open(file) as image:
                sample = Sample(image=planes(image), label=numpy.int64(label))
            sample.lossy = not file.endswith(".png")
            samples.append(sample)
        return samples

    def write_csv(self):
        path = self.folder / "csv"
        path.mkdir()
        for part in range(2):
            with open(path / f"{part}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["number", "fraction", "text"])
                for i in range(SAMPLES // 2):
                    writer.writerow([i - 50, float(self.numbers.normal()) * 10.0 ** (i % 30 - 15),
                                     TEXTS[i % len(TEXTS)] + ("\nline" if i % 9 == 0 else "")])
        return path

    @staticmethod
    def read_csv(path):
        """The rows by Python's csv; the types by pyarrow, as it guesses them."""
        from pyarrow import csv as arrow_csv
        samples = []
        for file in sorted(path.glob("*.csv")):
            with open(file, newline="", encoding="utf-8") as text:
                rows = list(csv.reader(text))
            table = arrow_csv.read_csv(file, parse_options=arrow_csv.ParseOptions(newlines_in_values=True))
            columns = []
            for i, name in enumerate(rows[0]):
                kind = str(table.schema.types[i])
                columns.append((name, {"int64": numpy.int64, "double": numpy.float32}.get(kind, str.encode)))
            assert table.num_rows == len(rows) - 1
            for row in rows[1:]:
                samples.append(Sample((name, kind(field)) for (name, kind), field in zip(columns, row)))
        return samples

    def write_lines(self):
        path = self.folder / "lines.txt"
        path.write_text("".join(f"{TEXTS[i % len(TEXTS)]} {i}\n" for i in range(SAMPLES)), encoding="utf-8")
        return path

    @staticmethod
    def read_lines(path):
        return [Sample(text=line.rstrip("\n").encode()) for line in open(path, newline="\n", encoding="utf-8")]

    def write_labelled_lines(self):
        path = self.folder / "labelled.txt"
        path.write_text("".join(f"{['good', 'bad', 'neither'][i % 3]}\t{TEXTS[i % len(TEXTS)]}\t{i}\n"
                                for i in range(SAMPLES)), encoding="utf-8")
        return path

    @staticmethod
    def read_labelled_lines(path):
        file = path / "data.txt" if path.is_dir() else path
        rows = [line.rstrip("\n").split("\t", 1) for line in open(file, newline="\n", encoding="utf-8")]
        names = {row[0] for row in rows}
        numbers = all(name.lstrip("-").isdigit() for name in names)
        classes = sorted(names, key=int) if numbers else sorted(names, key=str.encode)
        return [Sample(text=text.encode(), label=numpy.int64(classes.index(label))) for label, text in rows]

    def write_text_folders(self):
        path = self.folder / "texts"
        for i in range(60):
            folder = path / ["neg", "pos"][i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i:03}.txt").write_text(f"{TEXTS[i % len(TEXTS)]}\n{i}\n", encoding="utf-8")
        return path

    @staticmethod
    def read_text_folders(path):
        classes = sorted(entry.name for entry in path.iterdir())
        return [Sample(text=file.read_bytes(), label=numpy.int64(label))
                for label, name in enumerate(classes) for file in sorted((path / name).iterdir())]

    def arrays(self):
        return {"image": self.numbers.integers(0, 256, (SAMPLES, 3, 4, 5), dtype=numpy.uint8),
                "x": self.numbers.normal(size=(SAMPLES, 7)).astype(numpy.float32),
                "double": self.numbers.normal(size=(SAMPLES, 2)),
                "half": self.numbers.normal(size=SAMPLES).astype(numpy.float16),
                "short": self.numbers.integers(-1000, 1000, (SAMPLES, 3), dtype=numpy.int16),
                "label": self.numbers.integers(0, 10, SAMPLES, dtype=numpy.int64)}

    @staticmethod
    def given(array):
        """In the type in which samples of it are given (docs/data.md)."""
        kind = array.dtype.newbyteorder("=")
        wide = {"float64": "float32", "float16": "float32", "int8": "int32", "int16": "int32", "uint16": "int32",
                "uint32": "int64", "uint64": "int64", "bool": "uint8"}
        return array.astype(wide.get(kind.name, kind.name))

    def rows(self, arrays):
        arrays = {name: self.given(array) for name, array in arrays.items()}
        return [Sample((name, array[i]) for name, array in arrays.items()) for i in range(len(next(iter(arrays.values()))))]

    def write_npy(self):
        path = self.folder / "npy"
        path.mkdir()
        for name, array in self.arrays().items():
            numpy.save(path / f"{name}.npy", array.astype(array.dtype.newbyteorder(">")) if name == "short" else array)
        return path

    def read_npy(self, path):
        return self.rows({file.stem: numpy.load(file) for file in path.glob("*.npy")})

    def write_npz(self):
        numpy.savez_compressed(self.folder / "arrays.npz", **self.arrays())
        return self.folder / "arrays.npz"

    def read_npz(self, path):
        return self.rows(dict(numpy.load(path)))

    def write_safetensors(self):
        from safetensors.numpy import save_file
        save_file(self.arrays(), self.folder / "arrays.safetensors")
        return self.folder / "arrays.safetensors"

    def read_safetensors(self, path):
        from safetensors.numpy import load_file
        return self.rows(load_file(path))

    def write_parquet(self):
        import pyarrow
        from pyarrow import parquet
        path = self.folder / "parquet"
        path.mkdir()
        for part, compression in enumerate(["snappy", "zstd"]):
            arrays = self.arrays()
            table = pyarrow.table({
                "label": arrays["label"], "half": arrays["half"], "flag": arrays["label"] % 2 == 0,
                "vector": pyarrow.FixedSizeListArray.from_arrays(arrays["x"].reshape(-1), 7),
                "word": pyarrow.array([TEXTS[i % 5] for i in range(SAMPLES)]).dictionary_encode(),
                "text": [f"{TEXTS[i % 7]} {i}" for i in range(SAMPLES)]})
            parquet.write_table(table, path / f"{part}.parquet", compression=compression, row_group_size=70)
        return path

    @staticmethod
    def read_parquet(path):
        import pyarrow
        from pyarrow import parquet
        samples = []
        for file in sorted(path.glob("*.parquet")):
            table = parquet.read_table(file)
            columns = {}
            for name in table.column_names:
                column = table[name].combine_chunks()
                if pyarrow.types.is_dictionary(column.type):
                    column = column.cast(column.type.value_type)
                shape = [table.num_rows]
                if pyarrow.types.is_string(column.type):
                    columns[name] = [text.encode() for text in column.to_pylist()]
                    continue
                while pyarrow.types.is_fixed_size_list(column.type):
                    shape.append(column.type.list_size)
                    column = column.flatten()
                columns[name] = References.given(column.to_numpy(zero_copy_only=False).reshape(shape))
            for i in range(table.num_rows):
                samples.append(Sample((name, column[i]) for name, column in columns.items()))
        return samples

    def write_tfrecord(self):
        import tensorflow
        train = tensorflow.train
        path = self.folder / "tfrecord"
        path.mkdir()
        for shard in range(2):
            with tensorflow.io.TFRecordWriter(str(path / f"train.tfrecord-{shard:05}-of-00002")) as writer:
                for i in range(SAMPLES // 2):
                    image = picture(self.numbers, 20 + i % 7, 30)
                    data = encoded(image, "PNG") if i % 2 else encoded(image, "JPEG", quality=90)
                    writer.write(train.Example(features=train.Features(feature={
                        "image": train.Feature(bytes_list=train.BytesList(value=[data])),
                        "label": train.Feature(int64_list=train.Int64List(value=[i - 3])),
                        "text": train.Feature(bytes_list=train.BytesList(value=[f"{TEXTS[i % 7]} {i}".encode()])),
                        "box": train.Feature(float_list=train.FloatList(value=[i / 3, -i / 7])),
                    })).SerializeToString())
        return path

    @staticmethod
    def read_tfrecord(path):
        import tensorflow
        samples = []
        for record in tensorflow.data.TFRecordDataset([str(file) for file in sorted(path.iterdir())]):
            sample = Sample()
            example = tensorflow.train.Example.FromString(record.numpy())
            for name, feature in example.features.feature.items():
                shape = lambda values: values[0] if len(values) == 1 else values
                if feature.HasField("int64_list"):
                    sample[name] = shape(numpy.array(feature.int64_list.value, numpy.int64))
                elif feature.HasField("float_list"):
                    sample[name] = shape(numpy.array(feature.float_list.value, numpy.float32))
                elif feature.bytes_list.value[0][:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0"):
                    data = feature.bytes_list.value[0]
                    sample.lossy = data[:2] == b"\xff\xd8"
                    # Its default is the fast transform, which is up to 3 levels off the accurate one of others.
                    pixels = (tensorflow.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
                              if sample.lossy else tensorflow.io.decode_png(data, channels=3)).numpy()
                    sample[name] = numpy.ascontiguousarray(pixels.transpose(2, 0, 1))
                else:
                    sample[name] = feature.bytes_list.value[0]
            samples.append(sample)
        return samples

    def write_webdataset(self):
        import webdataset
        path = self.folder / "webdataset"
        path.mkdir()
        with webdataset.ShardWriter(str(path / "train-%04d.tar"), maxcount=SAMPLES // 3, verbose=0) as writer:
            for i in range(SAMPLES):
                image = picture(self.numbers, 20 + i % 7, 30)
                kind, data = ("png", encoded(image, "PNG")) if i % 2 else ("jpg", encoded(image, "JPEG", quality=85))
                writer.write({"__key__": f"{i:05}", kind: data, "cls": i % 11, "txt": f"{TEXTS[i % 7]} {i}"})
        return path

    @staticmethod
    def read_webdataset(path):
        import webdataset
        samples = []
        for item in webdataset.WebDataset([str(file) for file in sorted(path.iterdir())], shardshuffle=False):
            sample = Sample()
            for kind in {"jpg", "png"} & set(item):
                sample["image"] = planes(Image.open(io.BytesIO(item[kind])))
                sample.lossy = kind == "jpg"
            sample["label"] = numpy.int64(item["cls"])
            if "txt" in item:
                sample["text"] = item["txt"]
            samples.append(sample)
        return samples


# Format, name of the methods above, the reference, and what `downpour data generate` is told, if it writes the format.
IMAGES = ["--kind", "Images", "--shape", "3,14,15"]
FORMATS = [
    ("IDX", "idx", "numpy", ["--kind", "Images", "--shape", "1,12,9"]),
    ("CIFAR10", "cifar10", "numpy and pickle", ["--kind", "Images", "--shape", "3,32,32"]),
    ("CIFAR100", "cifar100", "numpy and pickle", None),
    ("ImageFolder", "image_folder", "torchvision, or Pillow", IMAGES),
    ("CSV", "csv", "csv and pyarrow", ["--kind", "Images", "--shape", "1,4,5"]),
    ("Text:Lines", "lines", "open()", None),
    ("Text:LabelledLines", "labelled_lines", "open()", ["--kind", "Text"]),
    ("Text:Folders", "text_folders", "open()", None),
    ("NPY", "npy", "numpy.load", IMAGES),
    ("NPY", "npz", "numpy.load", None),
    ("SafeTensors", "safetensors", "safetensors", IMAGES),
    ("Parquet", "parquet", "pyarrow", IMAGES),
    ("TFRecord", "tfrecord", "tensorflow", IMAGES),
    ("WebDataset", "webdataset", "webdataset", IMAGES),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="the build's folder")
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("formats", nargs="*", help="those that are compared; all of them without")
    arguments = parser.parse_args()
    tool = arguments.bin / "tests/data_dump"
    left_out = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        references = References(pathlib.Path(folder))
        for format_, name, library, generated in FORMATS:
            if arguments.formats and format_.split(":")[0] not in arguments.formats:
                continue
            draw = random.Random(f"{arguments.seed} {name}")
            read = getattr(references, f"read_{name}")
            try:
                path = getattr(references, f"write_{name}")()
                text = f"{compare(tool, format_, path, read(path), draw)} samples that it wrote"
                if generated is not None:
                    short = format_.split(":")[0]
                    path = pathlib.Path(folder) / f"generated-{name}"
                    subprocess.run([arguments.bin / "bin/downpour-data", "generate", path, "--format", short,
                                    "--samples", str(SAMPLES), "--test-samples", "5", *generated],
                                   check=True, stdout=subprocess.DEVNULL, timeout=300)
                    train = path / "train"
                    path = train if train.is_dir() else path
                    path = path / "data.safetensors" if format_ == "SafeTensors" else path
                    text += f", {compare(tool, format_, path, read(path), draw)} that downpour generated"
                print(f"{format_:18} {name:14} as {library} reads it: {text}", flush=True)
            except ImportError as error:
                left_out += 1
                print(f"{format_:18} {name:14} left out: {error}", flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"{format_:18} {name:14} FAILED (seed {arguments.seed}): {error}", flush=True)
    print(f"{len(FORMATS)} data sets; {failed} failed, {left_out} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
