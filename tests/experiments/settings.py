"""The experiments of docs/experiments.md. An algorithm is one entry of METHODS: it is then trained on every network, and on
machines of which some are slow."""

import copy
import dataclasses
from typing import Any

from experiment import Part, Run, Scaling, Slowdown, Throughput, Training

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
    strategy: str = "ParameterServer"


METHODS = (
    Method("sgd", "SGD alone", {"optimizer": {"type": "SGD"}}, {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2}, workers=1),
    Method("downpour", "Downpour SGD", {"mode": "Async", "optimizer": {"type": "SGD"}},
           {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2, "TimedLeNet": 0.2}, epochs={"TimedLeNet": 7}),
    Method("adagrad", "Downpour SGD with Adagrad",
           {"mode": "Async", "optimizer": {"type": "Adagrad", "initialAccumulator": 0.1}},
           {"MLP": 0.05, "LeNet": 0.05, "Timed": 0.05}),
    Method("bounded", "Bounded staleness", {"mode": "BoundedStaleness", "staleness": 4, "optimizer": {"type": "SGD"}},
           {"MLP": 0.2, "LeNet": 0.1, "Timed": 0.2}),
    Method("synchronous", "Synchronous SGD", {"mode": "Synchronous", "updatesPerStep": WORKERS, "optimizer": {"type": "SGD"}},
           {"MLP": 0.4, "LeNet": 0.3, "Timed": 0.4, "TimedLeNet": 0.24}),
    Method("allreduce", "All-reduce", {"optimizer": {"type": "SGD"}},
           {"MLP": 0.4, "LeNet": 0.3, "Timed": 0.4, "TimedLeNet": 0.24}, strategy="AllReduce"),
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


# Each sample takes so long, whether a worker has a core of its own or half of one: several times what it needs.
MICROSECONDS = 1000
TIMED_LENET = Network("TimedLeNet", 0.85, 5, "LeNet", {"plugin": {"path": "timed_network.so", "name": "TimedLeNet",
                                                                  "parameters": {"microseconds": MICROSECONDS}}})


def spec_of(method, network, workers=None, epochs=None, evaluate=True, more=None, batch=None):
    update = copy.deepcopy(method.update) | (more or {})
    if method.rates:
        update["optimizer"]["learningRate"] = method.rates[network.name]
    if method.local_rates:
        update["localOptimizer"]["learningRate"] = method.local_rates[network.name]
    epochs = epochs or (method.epochs or {}).get(network.name, network.epochs)
    model = copy.deepcopy(network.model)
    if network is TIMED:  # a sample takes as long in a larger batch
        model["plugin"]["parameters"]["milliseconds"] = MILLISECONDS * method.batch // BATCH
    spec = {"strategy": method.strategy} if method.strategy == "AllReduce" else {"parameterServer": {"replicas": 1}}
    return spec | {"worker": {"replicas": workers or method.workers}, "model": model, "dataset": IMAGES, "update": update,
                   "training": {"epochs": epochs, "batchSize": batch or method.batch, "evaluate": evaluate}}


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


SAMPLES_OF_A_STEP = 240
MOST_WORKERS = 4


def scaling():
    runs = []
    for name in ("downpour", "synchronous", "allreduce"):
        method = METHOD[name]
        for workers in range(1, MOST_WORKERS + 1):
            batch = None if name == "downpour" else SAMPLES_OF_A_STEP // workers
            more = {"schedule": {"type": "Cosine"}} | ({"updatesPerStep": workers} if name == "synchronous" else {})
            runs.append(Run(f"{name}-{workers}", f"{method.title}, {workers} worker{'s'[:workers > 1]}",
                            spec_of(method, TIMED_LENET, workers=workers, more=more, batch=batch), series=method.title))
    return Scaling("lenet", TIMED_LENET.title, tuple(runs), TIMED_LENET.accuracy, plots=())


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
Every algorithm trains both networks with {WORKERS} workers (SGD alone with one) and one ps (all-reduce with none), {BATCH} samples a minibatch. All workers
share the cores, so more of them compute no more than one or two do: what the plots against time compare is what the
algorithms cost and how far a sample brings them, not how they scale. For that see [slow machines](#slow-machines) and [one to four](#one-to-four-machines). Sandblaster L-BFGS
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
{WORKERS} updates, so one worker is spare; those of all-reduce, which has no spares, are of {MACHINES}.""",
         (machines("alike", f"{MACHINES} machines alike", ()),
          machines("slow", "The same, one of them five times slower, one stopped for 2 s every 8 s", SLOW_MACHINES)),
         remarks="""\
Who waits for nobody loses least: Downpour SGD keeps four fifths of its samples/s, the mode Synchronous about three quarters, as its spare worker
makes up for one of the two. Bounded staleness has to wait for its slowest worker, as its name says: it is then slower than one good
machine, and its updates are so late that it ends below 0.84. DiLoCo waits for ten steps at a time, reaches 0.84 a
little after one good machine does, and goes on to 0.87. Sandblaster ends with the very same model on both, to the bit; it takes a third longer with the slow ones, and
its 100 evaluations are not enough for 0.84 here. All-reduce, each step of which waits for all, keeps a sixth of its samples/s: it is for machines
that are alike."""),
    Part("scaling", "One to four machines", f"""\
Time to an accuracy of 0.85 on LeNet, with one worker to {MOST_WORKERS}, each of which has a machine of its own: all-reduce beside the modes
`Async` and `Synchronous` of one ps. The machines are simulated, as this one has too few cores: everything is computed as it would be
there, values, gradients and steps, but each sample takes {MICROSECONDS / 1000:g} ms of a worker's time in training and a third of that in an
evaluation, several times what computing it takes on a core, so that the workers hardly feel that they share the cores. The network is not
simulated: it is loopback, where bytes cost next to nothing. What they would cost elsewhere is in none of the times; the columns
"pushed" and "pulled" say how many there are, of all-reduce what workers sent one another, as they count it.

A step of `Synchronous` and of all-reduce is {SAMPLES_OF_A_STEP} samples, in equal parts: one update of each worker. An update of Downpour SGD is
{BATCH} samples, whoever computes it. All have a `Cosine` schedule. An accuracy is known at the end of an epoch, so that a time jumps by
one where a curve passes 0.85 an epoch earlier or later; "samples to 0.85" says at which, and samples per second do without.
Evaluations are part of both: beside training with a ps, while training waits with all-reduce.""",
         (scaling(),), remarks="""\
All-reduce and the mode `Synchronous` learn the same from a sample: seven of the eight runs pass 0.85 in the third epoch, one in the fourth, having
been at 0.848. So they are equally fast, as long as bytes cost nothing: four workers take 59.6 s and 58.3 s where one takes 192. Neither is four
times as fast. An epoch of all-reduce with four workers takes 20 s, of which training is 15 s; for 3.3 s all wait for the one that evaluates, and 1.7 s,
6.6 ms a step, is all else: adding up, the optimizer in each worker, waking up, and that they do share the cores. Downpour SGD waits for
nobody, computes 3.99 times as many samples, and loses as much again by its late updates: with one worker and two 0.85 is reached in the second epoch,
with three and four in the fourth, so that four take as long as two. It needed seven epochs, where the others have five: with those four
workers ended at 0.843. That it is ahead with one worker is due to its updates of 100 samples, of which an epoch has 2.4 times as many.

What would differ on a network: with four workers all 5.25 GB that are pushed and pulled in the mode `Synchronous` go through the one ps, while each
worker of the ring sends 0.99 GB, and receives as much. The runs with one and two workers were made while others had much of the
machine; their samples per second are within about 2 % of what the times that are simulated allow. The coordinator knows of the first update of a ring up to
half a second late, so much may be missing from its times. That of all-reduce with one worker was made with
convolutions that are not fused: other last bits, the same simulated time."""),
    Part("stragglers", "Stragglers in the mode Synchronous", f"""\
The same network, no evaluation, {WORKERS} updates a step. A spare worker takes over what is late. Samples per second are those of the
steady part: from a second after the last worker joined on. The ratio is the geometric mean over the rounds, of this run to the
one without a straggler in the same round, with its smallest and largest value. To be reached with a spare worker: 0.85, at least 0.7.""",
         (stragglers(),), remarks="""\
Even where none is spare a late update is done twice: by whoever is done first with its own. A step then takes two updates' time, so the
job is half as fast and not as slow as its slowest worker."""),
)
