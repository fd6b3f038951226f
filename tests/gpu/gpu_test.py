"""What can be said of run's parts without a GPU and without programs."""

import array
import gzip
import json
import struct
import tempfile
import unittest
from pathlib import Path

import idx
import kernels
import measure
import runs
import tensors


class IdxTest(unittest.TestCase):
    def test_takes_the_first_samples_under_a_header_of_their_own(self) -> None:
        images = bytes([0, 0, 8, 3]) + struct.pack(">3I", 3, 2, 2) + bytes(range(12))
        two = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 2, 2) + bytes(range(8))
        self.assertEqual(idx.first_samples(images, 2), two)
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes([7, 8, 9])
        self.assertEqual(idx.first_samples(labels, 3), labels)

    def test_refuses_what_is_not_whole(self) -> None:
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes([7, 8, 9])
        for wrong in (b"", labels[:2], labels[:6], labels[:-1], labels + b"0", bytes([0, 0, 9]) + labels[3:]):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                idx.first_samples(wrong, 1)
        with self.assertRaisesRegex(ValueError, "has 3 samples, expected 4 or more"):
            idx.first_samples(labels, 4)

    def test_reads_both_forms_and_writes_one(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "labels"
            idx.write_gzip(Path(folder) / "labels.gz", b"content")
            self.assertEqual(idx.read(path), b"content")
            path.write_bytes(b"plain")
            self.assertEqual(idx.read(path), b"plain")
            self.assertEqual(gzip.decompress((Path(folder) / "labels.gz").read_bytes()), b"content")


def tensor(*values: float) -> tensors.Tensor:
    return tensors.Tensor([len(values)], array.array("f", values))


class TensorsTest(unittest.TestCase):
    def test_holds_a_difference_against_the_largest_value_and_the_change(self) -> None:
        def holds(start: tensors.Tensor, reference: tensors.Tensor, other: tensors.Tensor) -> bool:
            return tensors.compare({"w": start}, {"w": reference}, {"w": other})[0].holds

        self.assertTrue(holds(tensor(0, 0), tensor(1, -10), tensor(1, -10)))
        self.assertTrue(holds(tensor(0, 0), tensor(1, -10), tensor(1.0009, -10)))
        self.assertFalse(holds(tensor(0, 0), tensor(1, -10), tensor(1.0011, -10)))
        # Nothing was trained, or hardly more than what they differ by.
        self.assertFalse(holds(tensor(1, -10), tensor(1, -10), tensor(1, -10)))
        self.assertFalse(holds(tensor(1, -10.01), tensor(1, -10), tensor(1.0005, -10)))
        self.assertFalse(holds(tensor(0), tensor(0), tensor(0)))

    def test_refuses_another_network(self) -> None:
        one = {"w": tensor(1, 2)}
        for other in ({}, {"v": tensor(1, 2)}, {"w": tensor(1)}, {"w": tensor(1, 2), "v": tensor(1)}):
            with self.subTest(other=other), self.assertRaises(ValueError):
                tensors.compare(one, one, other)
            with self.subTest(start=other), self.assertRaises(ValueError):
                tensors.compare(other, one, one)

    def test_reads_a_model_file(self) -> None:
        def write(header: dict[str, object], values: list[float]) -> Path:
            text = json.dumps(header).encode()
            path = Path(folder) / "model.safetensors"
            path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(values)}f", *values))
            return path

        header = {"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
                  "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}}
        with tempfile.TemporaryDirectory() as folder:
            read = tensors.read(write(header, [1, 2, 3]))
            self.assertEqual({name: (value.shape, list(value.values)) for name, value in read.items()},
                             {"w": ([1, 2], [1, 2]), "b": ([1], [3])})
            with self.assertRaisesRegex(ValueError, "w: holds values that are not finite"):
                tensors.read(write(header, [1, float("nan"), 3]))
            with self.assertRaisesRegex(ValueError, "holds no tensor"):
                tensors.read(write({}, []))


class MeasureTest(unittest.TestCase):
    def test_takes_the_rate_after_the_warm_up(self) -> None:
        # Slow until it is warm, then 100 a second.
        points = [{"seconds": 5 + i / 2, "samples": i if i < 4 else 4 + 50 * (i - 4)} for i in range(10)]
        self.assertAlmostEqual(runs.steady_rate(points), 100)
        with self.assertRaises(runs.Failure):
            runs.steady_rate(points[:6])

    def test_compares_versions_without_what_a_build_adds(self) -> None:
        self.assertEqual(measure.version("2.11.0+cu130"), [2, 11, 0])
        self.assertLess(measure.version("2.9"), measure.version("2.36"))


class KernelsTest(unittest.TestCase):
    def test_takes_skipped_tests_for_none(self) -> None:
        self.assertEqual(kernels.passed("[  PASSED  ] 10 tests.\n"), 10)
        skipped = "device_kernels_test.cc:142: Skipped\nno CUDA device\n[  SKIPPED ] A.B\n[  PASSED  ] 9 tests.\n"
        with self.assertRaisesRegex(runs.Failure, "skipped: no CUDA device"):
            kernels.passed(skipped)
        for nothing in ("", "[  PASSED  ] 0 tests.\n"):
            with self.subTest(nothing=nothing), self.assertRaisesRegex(runs.Failure, "no test was run"):
                kernels.passed(nothing)

    def test_says_that_nothing_was_packed(self) -> None:
        with self.assertRaisesRegex(runs.Failure, "were not packed"):
            kernels.test({}, 10)


if __name__ == "__main__":
    unittest.main()
