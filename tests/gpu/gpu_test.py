"""What can be said of run's parts without a GPU and without programs."""

import array
import contextlib
import gzip
import io
import json
import os
import struct
import tempfile
import unittest
from pathlib import Path
from typing import Any

import busy
import counter
import idx
import kernels
import lenet
import machine
import measure
import memory
import pack
import peers
import report
import runs
import session
import steps
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


class RunsTest(unittest.TestCase):
    def test_takes_the_rate_after_the_warm_up(self) -> None:
        # Slow until it is warm, then 100 a second.
        points = [{"seconds": 5 + i / 2, "samples": i if i < 4 else 4 + 50 * (i - 4)} for i in range(10)]
        self.assertAlmostEqual(runs.steady_rate(points), 100)
        with self.assertRaises(runs.Failure):
            runs.steady_rate(points[:6])

    def test_compares_versions_without_what_a_build_adds(self) -> None:
        self.assertEqual(machine.version("2.11.0+cu130"), [2, 11, 0])
        self.assertLess(machine.version("2.9"), machine.version("2.36"))


class StepsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.folder = tempfile.TemporaryDirectory()
        self.results = report.Results(Path(self.folder.name))
        self.said = io.StringIO()

    def tearDown(self) -> None:
        self.folder.cleanup()

    def do(self, of: steps.Steps, seconds: float) -> bool:
        def body() -> str:
            self.now += seconds
            return "done"

        with contextlib.redirect_stdout(self.said):
            return of.do("step", body)

    def begin_part(self, of: steps.Steps, name: str, seconds: float) -> bool:
        with contextlib.redirect_stdout(self.said):
            return of.begin_part(name, seconds)

    def test_no_part_takes_the_time_of_another(self) -> None:
        of = steps.Steps(self.results, 300, lambda: self.now)
        self.assertTrue(self.begin_part(of, "slow", 100))
        self.assertEqual(of.left(), 100)
        self.assertTrue(self.do(of, 90))
        self.assertFalse(self.do(of, 1), "10 s are left of the part")
        self.assertIn("the time is over", self.results.failures[0]["failure"])
        self.assertTrue(self.begin_part(of, "next", 100))
        self.assertTrue(self.do(of, 5))
        self.assertEqual(self.results.not_reached, [])

    def test_says_what_was_not_reached(self) -> None:
        of = steps.Steps(self.results, 100, lambda: self.now)
        self.assertTrue(self.begin_part(of, "first", 1000))
        self.assertEqual(of.left(), 100, "of all there is no more")
        self.assertTrue(self.do(of, 85))
        self.assertFalse(self.begin_part(of, "second", 50))
        self.assertEqual(self.results.not_reached, ["second"])
        self.results.complete = True
        self.assertFalse(self.results.holds)
        self.assertIn("Not reached: second.", (Path(self.folder.name) / "results.md").read_text())

    def test_says_why_a_step_failed(self) -> None:
        def body() -> str:
            raise runs.Failure("too slow")

        of = steps.Steps(self.results, 100, lambda: self.now)
        with contextlib.redirect_stdout(self.said):
            self.assertFalse(of.do("step", body))
        self.assertIn("step (0.0 s): FAILED: too slow", self.said.getvalue())


class OptionsTest(unittest.TestCase):
    def test_parts(self) -> None:
        self.assertEqual(measure.parts_of("all"), list(measure.PARTS))
        self.assertEqual(measure.parts_of("nccl,lenet"), ["nccl", "lenet"])
        for wrong in ("jobs", "lenet,", "all,lenet"):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "--parts: .*expected some of lenet,peers"):
                measure.parts_of(wrong)

    def test_batches(self) -> None:
        self.assertEqual(measure.batches_of(""), {})
        self.assertEqual(measure.batches_of("unet=8,acoustic=64"), {"unet": 8, "acoustic": 64})
        for wrong in ("unet", "unet=0", "unet=x", "mlp=3"):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "--batches: got "):
                measure.batches_of(wrong)


class LeNetTest(unittest.TestCase):
    def test_takes_the_time_of_epochs_after_the_first(self) -> None:
        # 10 s of beginning and half an epoch in one; then 2 s an epoch of 100 samples.
        points = [{"seconds": 11.0, "samples": 50}] + [{"seconds": 12.0 + i, "samples": 100 + 50 * i} for i in range(5)]
        self.assertAlmostEqual(lenet.seconds_an_epoch(points, 100), 2)
        self.assertAlmostEqual(lenet.seconds_an_epoch(points[2:], 100), 2, msg="nobody saw the end of the first")
        for short in ([], points[:1], points[:3]):
            with self.subTest(short=short), self.assertRaises(runs.Failure):
                lenet.seconds_an_epoch(short, 100)


class PeersTest(unittest.TestCase):
    def test_reads_how_many_values_a_ps_holds(self) -> None:
        log = "info [ps-0] view: generation 1, incarnation 1, epoch 1: 48 slices, 167108608 bytes\n"
        self.assertEqual(peers.values_of(log), 41777152)
        with self.assertRaises(runs.Failure):
            peers.values_of("info [ps-0] serves")


class BusyTest(unittest.TestCase):
    def test_counts_what_overlaps_once(self) -> None:
        entries = [(10, 40, 60), (10, 0, 20), (1, 10, 30), (10, 45, 50), (2, 90, 120)]
        self.assertAlmostEqual(busy.share(entries, 0, 100), 0.6)
        self.assertAlmostEqual(busy.share(entries, 5, 15), 1.0)
        self.assertAlmostEqual(busy.share([], 0, 100), 0.0)

    def test_takes_the_end_of_a_run(self) -> None:
        # A kernel of 1 ms each 4 ms for 10 s, and a copy in each pause.
        entries = []
        for i in range(2500):
            begin = 1_000_000_000 + i * 4_000_000
            entries += [(10, begin, begin + 1_000_000), (1, begin + 2_000_000, begin + 3_000_000)]
        found = busy.shares(entries, 4)
        self.assertAlmostEqual(found["busy"], 0.5, 3)
        self.assertAlmostEqual(found["kernels"], 0.25, 3)
        self.assertAlmostEqual(found["copies"], 0.25, 3)
        self.assertAlmostEqual(found["kernelsASecond"], 250, 0)
        for short in ([], entries[:100]):
            with self.subTest(entries=len(short)), self.assertRaises(runs.Failure):
                busy.shares(short, 4)

    def test_reads_what_was_noted(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "times"
            path.write_bytes(struct.pack("<6Q", 10, 1, 2, 1, 3, 4))
            self.assertEqual(busy.read(path), [(10, 1, 2), (1, 3, 4)])
            path.write_bytes(struct.pack("<6Q", 10, 1, 2, 0, 7, 0))
            with self.assertRaisesRegex(runs.Failure, "7 records"):
                busy.read(path)
            path.write_bytes(struct.pack("<2Q", 10, 1))
            with self.assertRaisesRegex(runs.Failure, "has 2 values"):
                busy.read(path)


class CounterTest(unittest.TestCase):
    def model(self, **other: tensors.Tensor) -> dict[str, tensors.Tensor]:
        def counted(size: int) -> tensors.Tensor:
            values = array.array("f", bytes(4 * size))
            values[::counter.SLICE_ELEMENTS] = array.array("f", [7.0] * -(-size // counter.SLICE_ELEMENTS))
            return tensors.Tensor([size], values)

        return {"samples": tensor(2, 2), "large": counted(counter.SLICE_ELEMENTS + 5), "small": counted(7), "scalar": counted(1),
                "odd": counted(15)} | other

    def test_finds_what_is_not_counted_exactly(self) -> None:
        counter.check_counts(self.model(), 7, 2)
        large = self.model()["large"]
        large.values[counter.SLICE_ELEMENTS] = 6
        for wrong, message in (({"samples": tensor(2, 1)}, "1 samples were not used 2 times"),
                               ({"large": large}, "large, slice at 1048576: counted 6.0 of 7"),
                               ({"small": tensor(8, 0)}, "small, slice at 0: counted 8.0"),
                               ({"odd": tensor(7, 0.5)}, "odd, slice at 0: a value that no gradient touches"),
                               ({"more": tensor(7)}, "the model has the tensors")):
            with self.subTest(wrong=message), self.assertRaisesRegex(runs.Failure, message):
                counter.check_counts(self.model(**wrong), 7, 2)

    def test_kills_only_workers_of_the_run_that_have_begun(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "logs").mkdir()
            (folder / "metrics.jsonl").write_text('{"type":"progress","updates":50,"updatesExpected":100}\n')
            (folder / "status.json").write_text(json.dumps({"processes": [
                {"role": "worker", "index": 0, "name": "worker-0", "pid": os.getpid()}]}))
            kills = counter.Kills([0.4])
            kills.step(folder)  # it has no log
            (folder / "logs/worker-0.log").write_text("==== one\nstarts as incarnation 1\n==== two\n")
            self.assertFalse(counter.has_begun(folder, "worker-0"))
            (folder / "logs/worker-0.log").write_text("==== two\nstarts as incarnation 2\n")
            self.assertTrue(counter.has_begun(folder, "worker-0"))
            kills.step(folder)  # this process is not of the run
            self.assertEqual(kills.pids, [])


class MemoryTest(unittest.TestCase):
    def test_takes_one_line_with_a_size(self) -> None:
        line = "CUDA out of memory. Tried to allocate 512.00 GiB. GPU 0 has a total capacity of 139.81 GiB"
        used = "127.0.0.1:1: is on this machine, its data go through shared memory"
        self.assertEqual(memory.told(f"{used}\n{line}\n"), line)
        for wrong in (used, f"{line}\n{line}", "CUDA out of memory"):
            with self.subTest(wrong=wrong), self.assertRaises(runs.Failure):
                memory.told(wrong)

    def test_takes_the_growth_between_two_moments(self) -> None:
        samples = [runs.Sample(second, mib, 50) for second, mib in enumerate([1, 100, 300, 301, 300, 5])]
        run = runs.Run(Path(), 0, {}, [], 1, samples)
        self.assertEqual(memory.device_growth(run, 2, 4), (300, 301))
        self.assertIsNone(memory.device_growth(run, 10, 20))
        self.assertEqual(run.gpu_memory, 300)


class ReportTest(unittest.TestCase):
    def test_has_a_row_for_each_table(self) -> None:
        rows: dict[str, dict[str, Any]] = {
            "lenet": {"device": "CUDA", "batch": 256, "epochs": 15, "secondsAnEpoch": 0.5, "accuracy": 0.9,
                      "firstUpdateSeconds": 1.0, "gpuMemoryMiB": None},
            "peers": {"model": "UNet", "device": "CUDA", "batch": 64, "precision": "fp32", "values": 1000, "alone": 2.0,
                      "byPs": 3.0},
            "busy": {"model": "UNet", "byNvidiaSmi": 0.5, "busy": 0.75},
            "counter": {"device": "CUDA", "workers": 2, "updates": 10, "kills": 4, "restarts": 4, "totalSeconds": 9.0},
            "memory": {"device": "CUDA", "steps": 10000, "from": 1000, "deviceMiB": (5, 6), "hostMiB": {"worker-0": [1, None]}},
            "outOfMemory": {"device": "CUDA", "line": "out | of memory", "totalSeconds": 3.0},
            "nccl": {"tests": 4, "memoryBeforeMiB": None, "firstHalfMiB": 5, "secondHalfMiB": 6},
        }
        with tempfile.TemporaryDirectory() as folder:
            results = report.Results(Path(folder), complete=True)
            for name, row in rows.items():
                results.add(name, row)
            results.write()
            text = (Path(folder) / "results.md").read_text()
            self.assertTrue(json.loads((Path(folder) / "results.json").read_text())["holds"])
        for cell in ("| 0.50 s | 0.9000 |", "| 2.00 ms | 3.00 ms | 1.50 | not known | not known |", "| UNet | 75% | not known |",
                     "| 5 to 6 MiB | not known | not known |", "| out / of memory | 3.0 s |"):
            self.assertIn(cell, text)


class PackTest(unittest.TestCase):
    def test_packs_every_script(self) -> None:
        here = Path(__file__).resolve().parent
        scripts = {path.name for path in here.glob("*.py")} - {"gpu_test.py", "idx.py", "pack.py"} | {"run"}
        self.assertEqual(set(pack.SCRIPTS), scripts)


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
        downpour = runs.Downpour(Path("/nonexistent"), Path("/torch/lib"), Path("/nonexistent"), lambda: 10.0)
        with tempfile.TemporaryDirectory() as folder:
            results = report.Results(Path(folder))
            nothing = session.Session(steps.Steps(results, 100), results, downpour, "CPU", "CPU", [], {}, [], False)
            with self.assertRaisesRegex(runs.Failure, "were not packed"):
                kernels.test(nothing)


if __name__ == "__main__":
    unittest.main()
