"""Settings of experiments_test.py: generated images, a few seconds."""

from experiment import Part, Run, Scaling, Slowdown, Throughput, Training

IMAGES = {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "samples": 2000, "testSamples": 200}}
TIMED = {"plugin": {"path": "timed_network.so", "name": "TimedPerceptron", "parameters": {"milliseconds": 10}}}


TIMED_LENET = {"plugin": {"path": "timed_network.so", "name": "TimedLeNet", "parameters": {"microseconds": 1000}}}
PARAMETER_SERVER = {"parameterServer": {"replicas": 1}}
ALL_REDUCE = {"strategy": "AllReduce"}


def spec(workers, epochs, model, evaluate, strategy=PARAMETER_SERVER, **update):
    return strategy | {"worker": {"replicas": workers}, "model": model, "dataset": IMAGES,
                       "update": update | {"optimizer": {"learningRate": 0.1}},
                       "training": {"epochs": epochs, "batchSize": 50, "evaluate": evaluate}}


PARTS = (
    Part("methods", "Algorithms", "Two codecs.", (
        Training("mlp", "MLP", (
            Run("fp32", "fp32", spec(2, 3, {"name": "MLP"}, True)),
            Run("int8", "int8", spec(2, 3, {"name": "MLP"}, True, codec="int8"), compared_with="fp32", target=0.05)),
            accuracy=0.5, plots=(("test accuracy", "seconds"), ("test accuracy", "bytes"), ("training loss", "samples"))),
        Training("never", "Never run", (Run("never", "never", {}),), accuracy=0.5, plots=()))),
    Part("scaling", "More machines", "One and two.", (
        Scaling("lenet", "LeNet", tuple(
            Run(f"{name}-{workers}", f"{title}, {workers}", spec(workers, 2, TIMED_LENET, True, strategy), series=title)
            for name, title, strategy in (("async", "Downpour SGD", PARAMETER_SERVER), ("allreduce", "All-reduce", ALL_REDUCE))
            for workers in (1, 2)), accuracy=0.5, plots=()),)),
    Part("stragglers", "Stragglers", "Stopped now and then.", (
        Throughput("bounded", "Three workers", (
            Run("alike", "all alike", spec(3, 20, TIMED, False)),
            Run("stopped", "one stopped", spec(3, 20, TIMED, False), (Slowdown(1, running=0.02, stopped=0.08),),
                compared_with="alike", target=0.01)), rounds=1),)),
)
