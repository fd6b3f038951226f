"""The experiments of docs/experiments.md. An algorithm is one entry of METHODS: it is then trained on every network, and on
machines of which some are slow."""

import copy
import dataclasses
from typing import Any

from experiment import Part, Run, Slowdown, Throughput, Training

IMAGES = {"format": "IDX", "path": "/usr/share/datasets/fashion-mnist"}
WORKERS = 4
BATCH = 100


@dataclasses.dataclass(frozen=True)
class Method:
    name: str
    title: str
    update: dict[str, Any]      # spec.update
    rates: dict[str, float] | None  # by network: spec.update.optimizer.learningRate
    workers: int = WORKERS
    local_rates: dict[str, float] | None = None  # by network: spec.update.localOptimizer.learningRate
    batch: int = BATCH
    epochs: dict[str, int] | None = None  # by network, where an epoch is not what it is to the others


METHODS = (
    Method("sgd", "SGD alone", {"optimizer": {"type": "SGD"}}, {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2}, workers=1),
    Method("downpour", "Downpour SGD", {"mode": "Async", "optimizer": {"type": "SGD"}},
           {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2}),
    Method("adagrad", "Downpour SGD with Adagrad",
           {"mode": "Async", "optimizer": {"type": "Adagrad", "initialAccumulator": 0.1}},
           {"MLP": 0.05, "LeNet": 0.05, "Timed": 0.05}),
    Method("bounded", "Bounded staleness", {"mode": "BoundedStaleness", "staleness": 4, "optimizer": {"type": "SGD"}},
           {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2}),
    Method("synchronous", "Synchronous SGD", {"mode": "Synchronous", "updatesPerStep": WORKERS, "optimizer": {"type": "SGD"}},
           {"MLP": 0.4, "LeNet": 0.3, "Timed": 0.4}),
    Method("diloco", "DiLoCo", {"mode": "Synchronous", "updatesPerStep": WORKERS, "localSteps": 10, "clipNorm": 1,
                                "localOptimizer": {"type": "AdamW"},
                                "optimizer": {"type": "Nesterov", "momentum": 0.9}},
           {"MLP": 0.7, "LeNet": 0.7, "Timed": 0.7}, local_rates={"MLP": 0.001, "LeNet": 0.001, "Timed": 0.001}),
    Method("sandblaster", "Sandblaster L-BFGS", {"mode": "Sandblaster", "lbfgs": {"history": 10}}, None, batch=10 * BATCH,
           epochs={"MLP": 100, "LeNet": 120, "Timed": 100}),
)
CODECS = (("fp32", "fp32", {}), ("bf16", "bf16", {}), ("int8", "int8", {}), ("topk", "topK 1 %", {"topK": 0.01}),
          ("onebit", "oneBit", {}))
WITHIN_A_POINT = ("int8", "topk")
PLOTS = (("test accuracy", "seconds"), ("test accuracy", "samples"), ("test accuracy", "bytes"), ("training loss", "seconds"))


@dataclasses.dataclass(frozen=True)
class Network:
    name: str
    accuracy: float
    epochs: int
    title: str
    model: dict[str, Any]


NETWORKS = (
    Network("MLP", 0.84, 10, "MLP (784-128-10)", {"name": "MLP"}),
    Network("LeNet", 0.85, 15, "LeNet", {"name": "LeNet"}),
)

# Of a network that takes so long without computing, a step lasts as long however many workers share the cores.
MILLISECONDS = 20
TIMED = Network("Timed", 0.84, 12, "", {"plugin": {"path": "timed_network.so", "name": "TimedPerceptron",
                                                  "parameters": {"milliseconds": MILLISECONDS, "units": 64}}})


def spec_of(method, network, workers=None, epochs=None, evaluate=True, more=None):
    update = copy.deepcopy(method.update) | (more or {})
    if method.rates:
        update["optimizer"]["learningRate"] = method.rates[network.name]
    if method.local_rates:
        update["localOptimizer"]["learningRate"] = method.local_rates[network.name]
    epochs = epochs or (method.epochs or {}).get(network.name, network.epochs)
    model = copy.deepcopy(network.model)
    if network is TIMED:  # a sample takes as long in a larger batch
        model["plugin"]["parameters"]["milliseconds"] = MILLISECONDS * method.batch // BATCH
    return {"parameterServer": {"replicas": 1}, "worker": {"replicas": workers or method.workers}, "model": model,
            "dataset": IMAGES, "update": update,
            "training": {"epochs": epochs, "batchSize": method.batch, "evaluate": evaluate}}


METHOD = {method.name: method for method in METHODS}


def methods(network):
    return Training(network.name.lower(), network.title, accuracy=network.accuracy, plots=PLOTS,
                    runs=tuple(Run(method.name, method.title, spec_of(method, network)) for method in METHODS))


def codecs(network):
    runs = []
    for name, title, fields in CODECS:
        codec = {"codec": "topK" if name == "topk" else "oneBit" if name == "onebit" else name, **fields}
        runs.append(Run(name, title, spec_of(METHOD["downpour"], network, more=codec),
                        compared_with="" if name == "fp32" else "fp32", target=0.01 if name in WITHIN_A_POINT else None))
    return Training(network.name.lower(), network.title, accuracy=network.accuracy, runs=tuple(runs),
                    plots=(("test accuracy", "samples"), ("test accuracy", "bytes"), ("training loss", "samples")))


FIVE_TIMES_SLOWER = {"running": 0.01, "stopped": 0.04}
STOPPED_NOW_AND_THEN = {"running": 6, "stopped": 2}
MACHINES = 5
SLOW_MACHINES = (Slowdown(1, **FIVE_TIMES_SLOWER), Slowdown(2, **STOPPED_NOW_AND_THEN))


def machines(name, title, slowdowns):
    runs = []
    for method in METHODS:
        alone = method.workers == 1
        spec = spec_of(method, TIMED, workers=1 if alone else MACHINES, epochs=3 if alone else None)
        runs.append(Run(method.name, method.title, spec, slowdowns=() if alone else slowdowns))
    return Training(name, title, accuracy=TIMED.accuracy, runs=tuple(runs), plots=(("test accuracy", "seconds"),))


def stragglers():
    runs = []
    for workers in (WORKERS + 1, WORKERS):
        spare = "one spare" if workers > WORKERS else "none spare"
        for name, title, slowdowns, epochs in (
                ("alike", "all alike", (), 4),
                ("stopped", "one stopped for 2 s, every 8 s", (Slowdown(1, **STOPPED_NOW_AND_THEN),), 4),
                ("slow", "one five times slower", (Slowdown(1, **FIVE_TIMES_SLOWER),), 4 if workers > WORKERS else 2)):
            runs.append(Run(f"{name}-{workers}", f"{workers} workers, {spare}: {title}",
                            spec_of(METHOD["synchronous"], TIMED, workers=workers, epochs=epochs, evaluate=False), slowdowns,
                            compared_with="" if name == "alike" else f"alike-{workers}",
                            target=0.85 if name != "alike" and workers > WORKERS else None))
    return Throughput("synchronous", f"Mode Synchronous, {WORKERS} updates a step", tuple(runs), rounds=3)


PARTS = (
    Part("methods", "Algorithms", f"""\
Every algorithm trains both networks with {WORKERS} workers (SGD alone with one) and one ps, {BATCH} samples a minibatch. All workers
share the cores, so more of them compute no more than one or two do: what the plots against time compare is what the
algorithms cost and how far a sample brings them, not how they scale. For that see [slow machines](#slow-machines). Sandblaster L-BFGS
needs no small minibatches: its portions are {10 * BATCH} samples; an epoch of it is one evaluation of the loss over all data.""",
         tuple(methods(network) for network in NETWORKS), remarks="""\
Late updates bear a smaller learning rate: with 0.4 on the MLP bounded staleness fell back to 0.2 after an accuracy of 0.72; the settings
have 0.2 for single updates and 0.4 for steps of four. Late updates also cost accuracy for each sample: SGD alone gets furthest of those that push
every gradient, and takes longest. DiLoCo is ahead in time, samples and bytes: its workers' own AdamW steps do what the plain steps of the others
do, a tenth as many bytes. L-BFGS takes one step for all 60,000 samples, where the others take 600: on the MLP it needs an order of
magnitude more samples, and on LeNet 120 evaluations end at 0.79, while the loss still falls; it was not run for longer. It is for problems whose gradient has to be exact, and for
more machines than these: its work is cut into portions that nobody waits for one another with.
[Hyperparameters](#hyperparameters) says what each run was measured with."""),
    Part("codecs", "Codecs", f"""\
Downpour SGD with {WORKERS} workers and each codec of `spec.update.codec` for what is pushed. What is pulled is fp32. Over loopback a
byte costs next to nothing: the plots against bytes say what a codec is worth where the network is the limit.""",
         tuple(codecs(network) for network in NETWORKS)),
    Part("machines", "Slow machines", f"""\
The shape of figure 4 of Dean et al. 2012: accuracy against time, when each worker has a machine of its own. The network is a
perceptron (784-64-10) whose step takes {MILLISECONDS} ms more without computing, so that {MACHINES} workers on a few cores are as fast as
on {MACHINES} machines. SGD alone has one machine, which is never slow, and fewer epochs. Steps of the modes that wait are of
{WORKERS} updates, so one worker is spare.""",
         (machines("alike", f"{MACHINES} machines alike", ()),
          machines("slow", "The same, one of them five times slower, one stopped for 2 s every 8 s", SLOW_MACHINES)),
         remarks="""\
Who waits for nobody loses least: Downpour SGD keeps four fifths of its samples/s, the mode Synchronous about three quarters, as its spare worker
makes up for one of the two. Bounded staleness has to wait for its slowest worker, as its name says: it is then slower than one good
machine, and its updates are so late that it ends below 0.84. DiLoCo waits for ten steps at a time, reaches 0.84 a
little after one good machine does, and goes on to 0.87. Sandblaster ends with the very same model on both, to the bit; it takes a third longer with the slow ones, and
its 100 evaluations are not enough for 0.84 here."""),
    Part("stragglers", "Stragglers in the mode Synchronous", f"""\
The same network, no evaluation, {WORKERS} updates a step. A spare worker takes over what is late. Samples per second are those of the
steady part: from a second after the last worker joined on. The ratio is the geometric mean over the rounds, of this run to the
one without a straggler in the same round, with its smallest and largest value. To be reached with a spare worker: 0.85, at least 0.7.""",
         (stragglers(),), remarks="""\
Even where none is spare a late update is done twice: by whoever is done first with its own. A step then takes two updates' time, so the
job is half as fast and not as slow as its slowest worker."""),
)
