#include "operator/api/crd.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace downpour::api {
namespace {

using Json = nlohmann::ordered_json;
using schema::Presence;

// "spec.a[].b" -> what `kubectl explain` shows. Below a pod template the path begins with "template".
struct Description {
  std::string_view path;
  std::string_view text;
};

constexpr Description kDescriptions[] = {
    {"",
     "A TrainingJob trains one model with a coordinator, parameter servers and workers. The operator makes their "
     "pods, replaces those that fail as the failure policy says, and reports what training does in the status."},
    {"apiVersion", "The version of this format, training.downpour.dev/v1alpha1."},
    {"kind", "TrainingJob."},

    {"spec",
     "What is wanted. While the job exists, only suspend, worker.replicas, elastic, failurePolicy, podCleanup, "
     "activeDeadlineSeconds and ttlSecondsAfterFinished can change."},
    {"spec.strategy",
     "How the workers share what they learn. ParameterServer: the parameters are held by parameter "
     "servers, to which every worker sends its gradients. AllReduce: every worker has them all, and the workers add up "
     "their gradients among themselves."},
    {"spec.suspend",
     "True: nothing runs. The pods of a running job end, and training begins again when this becomes "
     "false."},
    {"spec.managedBy",
     "The controller that carries the job out, as kueue.x-k8s.io/multikueue, which runs it in another cluster. The "
     "operator passes over jobs that are not its own."},
    {"spec.coordinator",
     "The coordinator: one process that hands out the data, keeps the members and counts every "
     "update."},
    {"spec.coordinator.template",
     "Pod template of the coordinator. The operator adds the container of the trainer, "
     "and merges it with the container of that name if the template has one. Without a request or limit of its own "
     "that container asks for 50m of CPU and 64Mi of memory."},
    {"spec.parameterServer",
     "The parameter servers. Required with the strategy ParameterServer, refused with AllReduce."},
    {"spec.parameterServer.replicas",
     "The parameters are spread over so many parameter servers. It may change while the job runs: what is to end is "
     "ended once it holds nothing any more."},
    {"spec.parameterServer.template",
     "Pod template of the parameter servers. The operator adds the container of the "
     "trainer, and merges it with the container of that name if the template has "
     "one. Without a request or limit of its own that container asks for 100m of CPU and 256Mi of memory."},
    {"spec.parameterServer.replicationFactor",
     "How many parameter servers hold each slice of the parameters. With 2 the loss of one costs nothing: another "
     "takes over. Needs as many replicas."},
    {"spec.parameterServer.replication",
     "How updates come to the standbys. Of a replicationFactor of more than 1. Absent: Sync."},
    {"spec.parameterServer.replication.type",
     "Sync: an update is acknowledged once the standby holds it. Async: up to maxLag updates earlier, which are lost "
     "with the parameter server; not in the modes Synchronous and Sandblaster."},
    {"spec.parameterServer.replication.maxLag",
     "Of Async: updates that a parameter server may be ahead of the standby. Absent: 16."},
    {"spec.parameterServer.disruption",
     "What becomes of evictions of parameter servers, as when a node is drained. Protect holds them up, as progress "
     "would be lost; the condition DrainWaits tells of a drain that waits. With checkpoint.onDisruption it waits for a "
     "checkpoint. Allow lets them through."},
    {"spec.parameterServer.maxProtectSeconds",
     "A drain that has waited for so long is let through in spite of Protect. Nobody knows of drains where the "
     "operator "
     "may not list nodes."},
    {"spec.worker", "The workers, which compute gradients."},
    {"spec.worker.replicas",
     "The wanted number of workers. The scale subresource reads and writes this field, so "
     "kubectl scale and autoscalers work. Workers come and go without a restart of the "
     "others. With spec.elastic, a number outside its bounds counts as the nearer bound. "
     "Without it, 0 counts as 1: spec.suspend stops a job."},
    {"spec.worker.gpus",
     "On so many GPUs of its node each worker computes every minibatch, which is cut by samples; it pushes one "
     "gradient. "
     "With the device CPU so many threads take their place. At most spec.training.batchSize, and only 1 with local "
     "steps. Absent: as many of these as the limits of the trainer's container have of nvidia.com/gpu, on a cluster, "
     "otherwise 1."},
    {"spec.worker.template",
     "Pod template of the workers. The operator adds the container of the trainer, and merges "
     "it with the container of that name if the template has one. Without a request or limit of its own that container "
     "asks for 200m of CPU and 512Mi of memory."},
    {"spec.elastic",
     "Lets the job go on with fewer workers than it wants when the cluster has no room for them, and "
     "grow back later. Absent: the number of workers is fixed."},
    {"spec.elastic.minReplicas", "Never fewer workers than this. At most maxReplicas."},
    {"spec.elastic.maxReplicas", "Never more workers than this."},
    {"spec.elastic.shrinkAfterSeconds",
     "A worker that has been pending for so long, or could not be made for so long, is given up: its pod is removed "
     "and training goes on with those that are there, never fewer than minReplicas. Longer than a pod takes to start, "
     "with the pull of its image; else it never gets there."},
    {"spec.elastic.growCooldownSeconds",
     "All workers that were given up are tried again together, so long after the newest of them was given up."},
    {"spec.elastic.batchPolicy",
     "With AllReduce: what a step is with more or fewer workers than worker.replicas. KeepGlobalBatch: as many updates "
     "as ever, shared out anew. ScaleLearningRate: one update of each worker, with as many times the learning rate as "
     "there are times as many workers. Absent: KeepGlobalBatch. It cannot be changed."},
    {"spec.elastic.stateCopies",
     "With AllReduce: how many workers hold each part of the optimizer's state, so that each has stateCopies / workers "
     "of it. 1: a lost worker takes its part with it, and the job goes back to its newest checkpoint. 2: any one "
     "worker may be lost and nothing is. What is learned is the same, bit by bit. Not with the optimizer LAMB. Absent: "
     "every worker has all of it. It cannot be changed."},
    {"spec.successPolicy",
     "Whose success is the success of the job. Coordinator: training is over when the "
     "coordinator has counted every update of every epoch."},
    {"spec.failurePolicy", "What happens when a pod ends before its time, or does not start, or does not end."},
    {"spec.failurePolicy.maxRestarts", "Counted restarts of the whole job within the window. One more fails the job."},
    {"spec.failurePolicy.maxRestartsPerReplica",
     "Counted restarts of one role and index within the window. One more "
     "fails the job."},
    {"spec.failurePolicy.windowSeconds",
     "The sliding window in which maxRestarts and maxRestartsPerReplica count, so "
     "that a long job does not die of rare faults. 0: for life."},
    {"spec.failurePolicy.backoff",
     "How long a replacement waits. The first one within the window starts at once, the "
     "second after initialSeconds, and each further one after twice as long."},
    {"spec.failurePolicy.backoff.initialSeconds", "The first wait. At most maxSeconds."},
    {"spec.failurePolicy.backoff.maxSeconds", "The longest wait."},
    {"spec.failurePolicy.terminationTimeoutSeconds",
     "A pod that has been terminating for so long, for example on a "
     "node that is gone, is deleted by force. A process that still "
     "runs there is fenced by its incarnation."},
    {"spec.failurePolicy.pendingTimeoutSeconds",
     "A pod that has not started for so long counts as failed, with the "
     "cause PendingTimeout."},
    {"spec.failurePolicy.rules",
     "What to do about which failure. In order; the first rule that matches wins. Without a match the pod is replaced; "
     "that counts, unless the platform ended it. Exit code 2, which means bad input, fails the job."},
    {"spec.failurePolicy.rules[]",
     "One rule. It matches if all of what it names matches, and names at least one of "
     "roles, onPodConditions, onContainerReasons and onExitCodes."},
    {"spec.failurePolicy.rules[].name", "Names the rule in events and in the status. Unique, an RFC 1035 label."},
    {"spec.failurePolicy.rules[].roles", "Matches pods of these roles. Empty: every role."},
    {"spec.failurePolicy.rules[].onPodConditions", "Matches if the pod that failed has one of these conditions."},
    {"spec.failurePolicy.rules[].onPodConditions[]", "A condition of a pod."},
    {"spec.failurePolicy.rules[].onPodConditions[].type",
     "Type of the condition, as DisruptionTarget, which a pod has "
     "when it was preempted, evicted or drained."},
    {"spec.failurePolicy.rules[].onPodConditions[].status",
     "Status of the condition. A string: YAML needs the quotes, "
     "\"True\"."},
    {"spec.failurePolicy.rules[].onContainerReasons",
     "Matches if the container ended for one of these reasons, as OOMKilled, or still waited for one of them, as "
     "ImagePullBackOff or ErrImagePull, when pendingTimeoutSeconds were over."},
    {"spec.failurePolicy.rules[].onExitCodes",
     "Matches the exit code of the container that ended the pod: the trainer's if it failed, else another one's that "
     "did."},
    {"spec.failurePolicy.rules[].onExitCodes.operator",
     "In: the exit code is one of the values. NotIn: it is none of "
     "them, and not 0."},
    {"spec.failurePolicy.rules[].onExitCodes.containerName",
     "The container, or init container, whose exit code it has to be. Absent: any."},
    {"spec.failurePolicy.rules[].onExitCodes.values",
     "Exit codes, without 0. A process that a signal ended has 128 "
     "and the number of the signal."},
    {"spec.failurePolicy.rules[].action",
     "Replace: a new pod takes the place. Replace of a parameter server takes "
     "the training back to the newest checkpoint, or to the beginning without one. RestartJob: all pods start again. "
     "FailJob: the job fails at once. Ignore: as Replace, and never counts."},
    {"spec.failurePolicy.rules[].countsTowardsLimit",
     "Whether such a restart counts towards maxRestarts and "
     "maxRestartsPerReplica. Set it to false for what is not the "
     "job's fault, such as preemption."},
    {"spec.progressDeadlineSeconds", "A job that applies no update for so long counts as hung and fails. 0: off."},
    {"spec.activeDeadlineSeconds",
     "The job fails if it runs longer than this, counted from status.startTime. Absent: "
     "no limit."},
    {"spec.ttlSecondsAfterFinished", "Deletes the job, and with it its pods, so long after its end. Absent: never."},
    {"spec.podCleanup", "Which pods are deleted when the job has ended."},
    {"spec.podCleanup.onSuccess",
     "After success. All: all pods. KeepFailed: all but the failed ones, whose logs stay readable. Running: only those "
     "that still run. None: no pod that has ended; what still runs is ended in any case, as with Running."},
    {"spec.podCleanup.onFailure", "After failure; the values mean the same as for onSuccess."},
    {"spec.podCleanup.coordinator", "What is different for the pod of the coordinator."},
    {"spec.podCleanup.coordinator.onSuccess", "After success. Absent: as for the job."},
    {"spec.podCleanup.coordinator.onFailure", "After failure. Absent: as for the job."},
    {"spec.podCleanup.parameterServer", "What is different for the pods of the parameter servers."},
    {"spec.podCleanup.parameterServer.onSuccess", "After success. Absent: as for the job."},
    {"spec.podCleanup.parameterServer.onFailure", "After failure. Absent: as for the job."},
    {"spec.podCleanup.worker", "What is different for the pods of the workers."},
    {"spec.podCleanup.worker.onSuccess", "After success. Absent: as for the job."},
    {"spec.podCleanup.worker.onFailure", "After failure. Absent: as for the job."},
    {"spec.checkpoint",
     "Where and when the state of the training is saved, and what it begins with. Absent: a parameter server that is "
     "lost costs all progress."},
    {"spec.checkpoint.uri",
     "Where checkpoints go: s3://BUCKET/PREFIX, or an absolute path in a volume that the coordinator and the parameter "
     "servers, with AllReduce the workers, mount, on whichever nodes they are. Each job has a folder of its name "
     "there."},
    {"spec.checkpoint.intervalSeconds", "The time from one checkpoint to the next. Training goes on meanwhile."},
    {"spec.checkpoint.keep", "So many checkpoints of the job stay, the newest; older ones are removed."},
    {"spec.checkpoint.keepBest",
     "A metric of spec.model.metrics: the checkpoint in which it is best stays as well. Absent: none does."},
    {"spec.checkpoint.extraMemory",
     "At most so much memory of a parameter server, beside its parameters, while a checkpoint is made, as 512Mi; where "
     "it is used up updates wait. Absent: as much as it takes."},
    {"spec.checkpoint.onDisruption",
     "A drain of a node with a parameter server waits for a checkpoint, and no longer. Absent: it waits for "
     "parameterServer.maxProtectSeconds."},
    {"spec.checkpoint.onDisruption.timeoutSeconds", "How long a drain, or a suspension, waits for its checkpoint."},
    {"spec.checkpoint.resumeFrom",
     "What training begins with. Latest: the newest checkpoint of this job that can be read, if there is one. Never: "
     "initial values. {trainingJob: name}: the newest one of that job, below the same uri. {uri: text}: that "
     "checkpoint, or the newest in that folder."},
    {"spec.tracking",
     "Where the figures of the run go besides: the coordinator takes them there, and never waits for it. Absent: "
     "nowhere."},
    {"spec.tracking.tensorboard", "Event files of TensorBoard. Absent: none."},
    {"spec.tracking.tensorboard.directory",
     "An absolute path in a volume that the coordinator mounts. Each job has a folder of its name there."},
    {"spec.tracking.tensorboard.histograms", "Also histograms of what differs from worker to worker."},
    {"spec.tracking.mlflow",
     "A tracking server of MLflow. Credentials are taken from the environment of the coordinator: "
     "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. Absent: none."},
    {"spec.tracking.mlflow.experiment", "Name of the experiment; made where there is none."},
    {"spec.tracking.mlflow.runName", "Name of the run. Absent: that of the job."},
    {"spec.tracking.mlflow.uri",
     "http(s)://HOST[:PORT][/PREFIX] of the server. Absent: MLFLOW_TRACKING_URI in the environment of the "
     "coordinator."},
    {"spec.scheduling", "How the pods get onto nodes."},
    {"spec.scheduling.gang",
     "How many pods must find room before any starts. None: each for itself. MinReplicas: as "
     "many as training needs. All: all of them."},
    {"spec.scheduling.provider", "Who schedules the gang. Auto: what the cluster offers."},
    {"spec.scheduling.queue", "Queue of the scheduler."},
    {"spec.scheduling.priorityClassName", "Priority class of every pod of the job."},
    {"spec.scheduling.avoidNodes",
     "Keeps new pods of this job off nodes on which its pods failed repeatedly, by a required node affinity. What was "
     "asked for, such as preemption and drain, is no failure here; the loss of a node is. Absent: no node is avoided."},
    {"spec.scheduling.avoidNodes.afterFailures",
     "A node is avoided after so many failures within failurePolicy.windowSeconds."},
    {"spec.scheduling.avoidNodes.forSeconds", "For so long after the newest of them."},
    {"spec.model", "The network that is trained."},
    {"spec.model.name", "A network of the model zoo. Either this or layers, plugin.name or torchScript."},
    {"spec.model.parameters", "Sizes of the network with that name, as docs/models.md lists them."},
    {"spec.model.layers", "The network as a list of layers, each a map with its type and sizes."},
    {"spec.model.layers[]", "A layer. docs/models.md lists the types and their fields."},
    {"spec.model.plugin", "A shared library with a network, losses or metrics of your own."},
    {"spec.model.plugin.path", "The file, inside the worker's container. At most 4096 bytes."},
    {"spec.model.plugin.name", "The network in it. Absent: only losses and metrics of it are used."},
    {"spec.model.plugin.parameters", "What the network is given when it is made."},
    {"spec.model.torchScript", "A module that was saved as TorchScript."},
    {"spec.model.torchScript.path", "The file, inside the worker's container. At most 4096 bytes."},
    {"spec.model.initialWeights",
     "What parameters and buffers begin with, frozen ones as well. Absent: what the seed makes of them."},
    {"spec.model.initialWeights.path",
     "A safetensors file, inside the worker's container: the export of another job, say. At most 4096 bytes."},
    {"spec.model.initialWeights.strict",
     "Whether it must have every parameter and buffer, and nothing else. Shapes must be the same anyway."},
    {"spec.model.loss", "What training makes small."},
    {"spec.model.loss.type",
     "CrossEntropy, BinaryCrossEntropy, MeanSquaredError, Huber or one of the plug-in. Absent: what the network or the "
     "target of the data set suggests."},
    {"spec.model.loss.labelSmoothing", "So much of a label's weight is spread over all classes. Of CrossEntropy."},
    {"spec.model.loss.delta", "Where Huber's loss goes over from squares to absolute values."},
    {"spec.model.metrics",
     "What is measured on the test set: Accuracy, Top5Accuracy, BinaryAccuracy, MeanAbsoluteError and those of the "
     "plug-in. status.progress.testMetrics has them all. Empty: the usual one of the loss."},
    {"spec.model.frozen", "Parameters that are not trained, by name. * stands for any text."},
    {"spec.dataset", "What it is trained and tested on. Every worker reads it."},
    {"spec.dataset.format",
     "IDX: the four files of the MNIST family, gzipped or not. CIFAR10, CIFAR100: their binary versions. ImageFolder: "
     "a "
     "folder of JPEG and PNG images for each class. CSV: tables. Text: lines, or a folder of texts for each class. "
     "NPY: "
     "arrays of NumPy, .npy or .npz. SafeTensors: arrays. Parquet: tables. TFRecord: records of tf.train.Example. "
     "WebDataset: tar archives. Synthetic: generated data."},
    {"spec.dataset.path",
     "Where the samples are, inside the container or as a URI (s3://, gs://, abfs://, hdfs://): a file or a directory. "
     "At most 4096 bytes. Not of Synthetic."},
    {"spec.dataset.testPath",
     "Likewise of the samples that are tested on, of the formats that do not say themselves which these are. At most "
     "4096 bytes."},
    {"spec.dataset.split", "Holds samples out to be tested on, where there is no testPath."},
    {"spec.dataset.split.validation", "The share of samples that are held out. At least 0, below 1."},
    {"spec.dataset.split.seed", "Another seed holds out others."},
    {"spec.dataset.fields",
     "What a sample consists of, in this order. Absent or empty: every column; those with classes, and those called "
     "label or target, are targets."},
    {"spec.dataset.fields[].column", "A column of the data. At most 128 characters. This, or columns."},
    {"spec.dataset.fields[].columns", "Columns of single numbers, which make one field, fp32 [columns]."},
    {"spec.dataset.fields[].name",
     "What the model knows it as. Absent: the name of the column. At most 128 characters."},
    {"spec.dataset.fields[].classes", "Of one integer: it is below this. Absent: what the data say, or no bound."},
    {"spec.dataset.fields[].role", "Input: what a model is given. Target: what it is to answer. Default: Input."},
    {"spec.dataset.transforms", "What is made of the fields, one after another, by each worker."},
    {"spec.dataset.transforms[].type",
     "Resize, CenterCrop, RandomCrop, RandomFlip, ColorJitter: of images. Normalize: (value - mean) / std, of pixels "
     "after a division by 255. Tokenize: the numbers of the words of a text. OneHot: of a label. Cast: to another "
     "dtype."},
    {"spec.dataset.transforms[].field",
     "The field that it is for. Absent: every one that such a transform is for. At most 128 characters."},
    {"spec.dataset.transforms[].height", "Of Resize, CenterCrop and RandomCrop: pixels."},
    {"spec.dataset.transforms[].width", "Of Resize, CenterCrop and RandomCrop: pixels."},
    {"spec.dataset.transforms[].padding", "Of RandomCrop: black pixels around the image. Absent: 0."},
    {"spec.dataset.transforms[].probability", "Of RandomFlip: of an image being turned. Absent: 0.5."},
    {"spec.dataset.transforms[].brightness", "Of ColorJitter: the factor is within 1 - this and 1 + this. Absent: 0."},
    {"spec.dataset.transforms[].contrast", "Of ColorJitter, likewise. Absent: 0."},
    {"spec.dataset.transforms[].saturation", "Of ColorJitter, likewise. Absent: 0."},
    {"spec.dataset.transforms[].mean", "Of Normalize: one number, or one for each channel."},
    {"spec.dataset.transforms[].std", "Of Normalize: as many numbers, above 0."},
    {"spec.dataset.transforms[].vocabulary", "Of Tokenize: most words that have numbers, the most frequent ones."},
    {"spec.dataset.transforms[].maxLength",
     "Of Tokenize: words of a text; what is behind them is left out. Absent: all."},
    {"spec.dataset.transforms[].classes", "Of OneHot. Absent: as many as the field has."},
    {"spec.dataset.transforms[].dtype", "Of Cast."},
    {"spec.dataset.columns",
     "Which columns are read, and of CSV and TFRecord what they hold. Absent or empty: all, and what they hold is "
     "found "
     "out. Of WebDataset: the extensions that are read."},
    {"spec.dataset.columns[].name", "At most 128 characters."},
    {"spec.dataset.columns[].type",
     "Required for CSV (u8, i32, i64, fp32, text, categorical) and TFRecord (i64, fp32, text, bytes, image), and only "
     "there."},
    {"spec.dataset.columns[].shape", "Of TFRecord: of an array. Absent or empty: one number."},
    {"spec.dataset.columns[].classNames",
     "Of CSV and the type categorical: the texts by their numbers. Absent or empty: those that are there, sorted."},
    {"spec.dataset.classNames",
     "Of ImageFolder and Text: the classes by their numbers. Absent or empty: those that are there, sorted."},
    {"spec.dataset.csv", "How CSV files are written."},
    {"spec.dataset.csv.header", "The first row has the names of the columns."},
    {"spec.dataset.csv.delimiter", "One character of ASCII."},
    {"spec.dataset.textLayout",
     "Of Text. Lines: a text a line. LabelledLines: a label, a tab and a text. Folders: a folder of texts for each "
     "class. Absent: Lines."},
    {"spec.dataset.channels", "Of images: 1, grey, or 3, red, green and blue. Absent: 3."},
    {"spec.dataset.threads", "Of each worker, that read and transform samples. Absent: as many as it has cores."},
    {"spec.dataset.prefetch", "Minibatches that a worker reads ahead. 0: none. Absent: 2."},
    {"spec.dataset.pinMemory",
     "Minibatches go to a GPU through page-locked memory, the next while one is computed with."},
    {"spec.dataset.onDevice",
     "Whether a GPU holds the whole training set, so that minibatches are not copied to it. Auto: one that is small "
     "against its memory. Never; Always, which fails where it cannot."},
    {"spec.dataset.onBadSample", "What becomes of samples that cannot be read."},
    {"spec.dataset.onBadSample.action",
     "Fail: the job fails. Skip: they are left out and counted, up to a limit. Default: Fail."},
    {"spec.dataset.onBadSample.limit", "Of Skip: samples that one worker leaves out."},
    {"spec.dataset.cache", "What workers keep on their disks: indexes, vocabularies, blocks of remote files."},
    {"spec.dataset.cache.directory",
     "Inside the container; workers share what it has of indexes and vocabularies; for blocks of remote data each has "
     "a folder of its own in it. At most 4096 bytes."},
    {"spec.dataset.cache.size", "Of the blocks of remote files."},
    {"spec.dataset.shuffle",
     "How the order of an epoch is made. Full: of all samples. Blocks: of a few blocks of neighbouring samples at a "
     "time, for data that are dear to read in any order, as those of a store."},
    {"spec.dataset.shuffleBlock", "Of Blocks: neighbouring samples that stay together. Absent: 1024."},
    {"spec.dataset.synthetic", "What is generated. docs/models.md says more of it."},
    {"spec.dataset.synthetic.kind", "What the samples are."},
    {"spec.dataset.synthetic.samples", "Samples of the training set. Absent: 10000."},
    {"spec.dataset.synthetic.testSamples", "Samples of the test set. Absent: 1000."},
    {"spec.dataset.synthetic.seed", "Another seed makes other samples. Absent: 1."},
    {"spec.dataset.synthetic.shape", "Shape of a sample. Absent or empty: the usual one of the kind. Not of Text."},
    {"spec.dataset.synthetic.classes", "Classes of the label. Absent: the usual number of the kind. Not of Radar."},
    {"spec.dataset.synthetic.vocabulary", "Numbers of words are below this. Absent: 10000. Of Text."},
    {"spec.dataset.synthetic.minLength", "Words of the shortest text. Absent: 20. Of Text."},
    {"spec.dataset.synthetic.maxLength", "Words of the longest text. Absent: 100. Of Text."},
    {"spec.training", "How long and with what the workers compute."},
    {"spec.training.epochs", "Passes over the training set. Without steps: 1."},
    {"spec.training.steps",
     "So many updates instead of epochs: the last pass over the training set is cut short. Not of the mode "
     "Sandblaster."},
    {"spec.training.batchSize", "Samples of a minibatch, on each worker."},
    {"spec.training.seed", "Seed of the initial weights and of the order of the samples."},
    {"spec.training.device", "Where workers compute. Auto takes a GPU if there is one."},
    {"spec.training.precision",
     "Precision of the forward and the backward pass. tf32: on a GPU, products of numbers rounded to 10 bits; fp32 on "
     "the "
     "CPU."},
    {"spec.training.memoryFormat",
     "How the values of images lie in memory. Auto: on the CPU as is fastest by a short measurement; on a GPU "
     "Contiguous with fp32, else ChannelsLast."},
    {"spec.training.threads", "Threads of one worker. 0: one."},
    {"spec.training.updatesPerShard", "Updates in one lease of data. 0: chosen by the coordinator."},
    {"spec.training.evaluate", "Whether loss and metrics are measured on the test set after each epoch."},
    {"spec.training.earlyStopping",
     "Ends the training before all epochs are done, once evaluations say that it no longer becomes better; the job "
     "succeeds. Absent: all epochs are done."},
    {"spec.training.earlyStopping.metric",
     "What is looked at: Loss, or one of spec.model.metrics. Of losses and errors less is better."},
    {"spec.training.earlyStopping.minDelta", "A change that is not greater is no improvement. Absent: 0."},
    {"spec.training.earlyStopping.patience", "It ends after so many epochs without improvement."},
    {"spec.training.earlyStopping.startFromEpoch", "So many epochs are not looked at."},
    {"spec.training.reduceOnPlateau",
     "Multiplies the learning rate, as the schedule says it, once evaluations say that training no longer becomes "
     "better. Absent: the schedule alone says the learning rate."},
    {"spec.training.reduceOnPlateau.metric",
     "What is looked at: Loss, or one of spec.model.metrics. Of losses and errors less is better."},
    {"spec.training.reduceOnPlateau.factor", "By what, each time; below 1. Absent: 0.1."},
    {"spec.training.reduceOnPlateau.patience", "The rate is reduced after so many epochs without improvement."},
    {"spec.training.reduceOnPlateau.cooldown", "So many epochs after a reduction are not counted."},
    {"spec.training.reduceOnPlateau.minLearningRate",
     "The learning rate is not reduced below this. Less than that of localOptimizer where there is one, otherwise of "
     "optimizer. Absent: 0."},
    {"spec.training.reduceOnPlateau.minDelta", "A change that is not greater is no improvement. Absent: 0.0001."},
    {"spec.training.keepBest",
     "Writes the model of the best evaluation as best.safetensors beside the model of the end, in output.directory. "
     "Absent: it is not written."},
    {"spec.training.keepBest.metric",
     "What it is best in: Loss, or one of spec.model.metrics. Of losses and errors less is better."},
    {"spec.update", "How gradients become new parameters."},
    {"spec.update.mode",
     "Async: workers do not wait for each other. BoundedStaleness: a worker waits where it is more than staleness "
     "updates ahead of the slowest. Synchronous: updatesPerStep updates are one step, with the mean of their "
     "gradients. Sandblaster: L-BFGS over all data, each epoch one evaluation of the loss and its gradient; ends when "
     "it has converged. With AllReduce it is Synchronous, and need not be there."},
    {"spec.update.lbfgs", "When and how the mode Sandblaster searches. Of that mode."},
    {"spec.update.lbfgs.history", "Pairs of steps and of changes of the gradient that are kept."},
    {"spec.update.lbfgs.gradientTolerance",
     "It has converged once no element of the gradient, over all data, is greater."},
    {"spec.update.lbfgs.maxIterations", "Most iterations. 0: as many as the epochs allow."},
    {"spec.update.staleness",
     "So many updates a worker may be ahead of the slowest, 4 by default. Of BoundedStaleness."},
    {"spec.update.warmStart",
     "So many updates one worker makes alone before the others begin. Absent: all begin at once. Not of Synchronous."},
    {"spec.update.updatesPerStep",
     "So many updates are one step. Absent: as many as worker.replicas. Workers beyond that are spare. Of "
     "Synchronous. With AllReduce they are shared out among the workers, and their number cannot be changed."},
    {"spec.update.optimizer", "The step that a parameter server, with AllReduce each worker, takes with a gradient."},
    {"spec.update.optimizer.type",
     "The rule. SGD, Momentum, Nesterov, Adagrad, RMSProp, Adam and AdamW are those of torch.optim. LAMB trusts each "
     "slice by its own norms. DelayCompensatedSGD corrects gradients that are late. docs/training.md has the "
     "formulas."},
    {"spec.update.optimizer.learningRate", "Learning rate, a float32. Greater than 0."},
    {"spec.update.optimizer.stalenessAware",
     "Whether updates that are late move the parameters less: those before which updates of others came between the "
     "worker's pull and its push. Absent: true; not with Synchronous, where none is late."},
    {"spec.update.optimizer.stalenessRule",
     "With stalenessAware. Divide: the learning rate is divided by how many updates came between. Gap: each element of "
     "the gradient is divided by how far its parameter has moved meanwhile, in steps."},
    {"spec.update.optimizer.momentum", "Of Momentum and Nesterov. Absent: 0.9."},
    {"spec.update.optimizer.beta1", "Decay of the moving average of gradients. Of Adam, AdamW and LAMB. Absent: 0.9."},
    {"spec.update.optimizer.beta2",
     "Decay of the moving average of squared gradients. Of Adam, AdamW and LAMB. Absent: 0.999."},
    {"spec.update.optimizer.epsilon",
     "What is added to a denominator. Absent: 1e-8 of RMSProp, Adam and AdamW, 1e-10 of Adagrad, 1e-6 of LAMB, 1e-7 of "
     "DelayCompensatedSGD with the compensation Adaptive. Of no others."},
    {"spec.update.optimizer.decay",
     "Decay of the moving average of squared gradients. Absent: 0.99 of RMSProp, 0.95 of DelayCompensatedSGD with the "
     "compensation Adaptive. Of no others."},
    {"spec.update.optimizer.initialAccumulator",
     "What the sum of squared gradients begins with. Of Adagrad. Absent: 0."},
    {"spec.update.optimizer.weightDecay",
     "Draws the parameters towards 0: added to the gradient as so much of the value; of AdamW and LAMB apart from the "
     "gradient. Absent: 0.01 of AdamW and LAMB, 0 of all others."},
    {"spec.update.optimizer.noDecay",
     "Parameters that do not decay, by name, as biases and norms. * stands for any text."},
    {"spec.update.optimizer.compensation",
     "Of DelayCompensatedSGD. Constant: lambda is used as it is. Adaptive: it is divided by the root of the moving "
     "average of squared gradients. Absent: Adaptive."},
    {"spec.update.optimizer.lambda",
     "How much a late gradient is corrected. Of DelayCompensatedSGD. Absent: 2 with the compensation Adaptive, 0.04 "
     "with Constant."},
    {"spec.update.schedule",
     "How the learning rate changes as the job goes on: that of localOptimizer where there is one, otherwise that of "
     "optimizer. Absent: it does not."},
    {"spec.update.schedule.type",
     "Step: times gamma after each interval. Exponential: the same without steps. Cosine: down to etaMin by half a "
     "cosine over the whole job. OneCycle: up to the learning rate and down again over the whole job. As in "
     "torch.optim.lr_scheduler."},
    {"spec.update.schedule.gamma",
     "Of Step and Exponential: factor of one interval. Absent: 0.1 of Step; Exponential needs it."},
    {"spec.update.schedule.every",
     "Of Step and Exponential: the interval, in updates or in epochs. Step needs it. Absent: one epoch."},
    {"spec.update.schedule.every.updates", "So many updates."},
    {"spec.update.schedule.every.epochs", "So many passes over the training set."},
    {"spec.update.schedule.etaMin", "Of Cosine: the learning rate at the end. Absent: 0."},
    {"spec.update.schedule.pctStart",
     "Of OneCycle: the part of the job in which the learning rate rises. Absent: 0.3."},
    {"spec.update.schedule.divFactor", "Of OneCycle: it begins with the learning rate divided by this. Absent: 25."},
    {"spec.update.schedule.finalDivFactor",
     "Of OneCycle: it ends with what it begins with divided by this. Absent: 10000."},
    {"spec.update.schedule.warmup", "The learning rate rises by a straight line at first. Absent: it does not."},
    {"spec.update.schedule.warmup.updates", "For so many updates. This or fraction."},
    {"spec.update.schedule.warmup.fraction", "For this part of the job's updates. This or updates."},
    {"spec.update.schedule.warmup.from", "It begins with this part of the learning rate. Absent: 0."},
    {"spec.update.accumulate", "Minibatches of one update, which has the mean of their gradients."},
    {"spec.update.localSteps",
     "Minibatches of one update, each of them a step that the worker takes on its own copy. Then the difference is "
     "what "
     "the optimizer gets for a gradient. 1: gradients are pushed."},
    {"spec.update.fetchEvery",
     "With localSteps above 1: a worker takes new values before each update of this number, and in between goes on "
     "with "
     "its own."},
    {"spec.update.localOptimizer", "The step that a worker takes on its own copy. Required with localSteps above 1."},
    {"spec.update.localOptimizer.type", "Which, as in torch.optim. Momentum: SGD with momentum."},
    {"spec.update.localOptimizer.learningRate", "Learning rate, a float32. Greater than 0."},
    {"spec.update.localOptimizer.momentum", "Of Momentum. Absent: 0.9."},
    {"spec.update.localOptimizer.beta1", "Of Adam and AdamW: decay of the mean of gradients. Absent: 0.9."},
    {"spec.update.localOptimizer.beta2", "Of Adam and AdamW: decay of the mean of squares. Absent: 0.999."},
    {"spec.update.localOptimizer.epsilon", "Of Adam and AdamW: added to the divisor. Absent: 1e-8."},
    {"spec.update.localOptimizer.weightDecay",
     "Of AdamW decoupled, of the others added to the gradient. Absent: 0.01 of AdamW, 0 of the others."},
    {"spec.update.clipNorm",
     "Greatest norm of a gradient, over all parameters; a greater one is scaled down to it. With localSteps above 1, "
     "of "
     "the gradient of each step. Absent: none."},
    {"spec.update.codec",
     "How gradients are encoded on the wire. What a codec leaves out the worker adds to its next gradient. fp32: as "
     "they are. bf16: half as many bytes. int8: a quarter. topK: the largest values only. oneBit: a bit for each "
     "value. With the strategy AllReduce fp32 or bf16, and nothing is added later."},
    {"spec.update.topK", "Of the codec topK: the fraction of the values that is sent. Absent: 0.01."},
    {"spec.update.pullCodec",
     "How parameters are encoded on their way to the workers that train. Those that evaluate or export get them as "
     "they are."},
    {"spec.output", "What is left when training is over."},
    {"spec.output.directory",
     "Directory in which the final model is written. Empty: it is not written to a directory "
     "of its own choice."},
    {"spec.output.keepSeconds",
     "Where the directory is in no volume that outlives its pod, the pod of the worker that wrote the model stays for "
     "so long after the end, so that the model can be copied. 0: it does not."},

    {"template.metadata", "Labels and annotations of the pods, and nothing else. The operator adds its own."},
    {"template.metadata.labels",
     "Labels of the pods. Those under training.downpour.dev/ belong to the operator and are refused."},
    {"template.metadata.annotations", "Annotations of the pods."},
    {"template.metadata.creationTimestamp", "Ignored: kubectl writes null here."},
    {"template.spec",
     "PodSpec as Kubernetes defines it. It is passed on and checked by the API server when a pod is "
     "made from it."},
    {"template.spec.restartPolicy",
     "May only be Never, which is what the operator sets: the failure policy decides "
     "what is started again."},
    {"template.spec.containers",
     "Containers of the pod. One of them is named trainer: the operator merges its own with it. Without any, it makes "
     "that one."},
    {"template.spec.activeDeadlineSeconds", "The pod fails if it runs longer."},
    {"template.spec.affinity", "To which nodes and pods it is drawn, and from which it keeps away."},
    {"template.spec.automountServiceAccountToken",
     "Whether it gets a token of the API server. Default of the operator: "
     "false."},
    {"template.spec.dnsConfig", "More of its name resolution."},
    {"template.spec.dnsPolicy",
     "How it resolves names. Default of the operator with hostNetwork: ClusterFirstWithHostNet."},
    {"template.spec.enableServiceLinks",
     "Variables for every Service of the namespace. Default of the operator: "
     "false."},
    {"template.spec.ephemeralContainers", "Not possible in a new pod."},
    {"template.spec.hostAliases", "More lines of /etc/hosts."},
    {"template.spec.hostIPC", "Whether it shares the IPC namespace of its node."},
    {"template.spec.hostNetwork",
     "Whether it shares the network of its node. Two such pods of jobs need two nodes, as both listen on port 8080."},
    {"template.spec.hostPID", "Whether it shares the process namespace of its node."},
    {"template.spec.hostUsers", "Whether it shares the user namespace of its node."},
    {"template.spec.hostname", "Refused: the operator sets it to the name of the pod."},
    {"template.spec.hostnameOverride", "A host name that DNS does not know."},
    {"template.spec.imagePullSecrets", "Secrets with which images are pulled."},
    {"template.spec.initContainers", "Containers that run before the others, or beside them."},
    {"template.spec.nodeName", "The node; no scheduler is asked."},
    {"template.spec.nodeSelector", "Labels that its node must have."},
    {"template.spec.os", "Operating system of its node."},
    {"template.spec.overhead", "Resources that the runtime class needs beside its containers."},
    {"template.spec.preemptionPolicy", "Whether it may preempt others."},
    {"template.spec.priority", "Priority; set from priorityClassName."},
    {"template.spec.priorityClassName", "Priority class."},
    {"template.spec.readinessGates", "More conditions that make it ready."},
    {"template.spec.resourceClaims", "Claims of devices."},
    {"template.spec.resources", "Resources of all containers together."},
    {"template.spec.runtimeClassName", "Runtime class."},
    {"template.spec.schedulerName", "The scheduler."},
    {"template.spec.schedulingGates", "What must be lifted before it is scheduled."},
    {"template.spec.securityContext",
     "User, groups and the like of all containers, merged field by field with those of the operator: 65532, not root. "
     "Null takes one of them away."},
    {"template.spec.serviceAccount", "The old name of serviceAccountName."},
    {"template.spec.serviceAccountName", "Service account."},
    {"template.spec.setHostnameAsFQDN", "Whether its host name is the fully qualified one."},
    {"template.spec.shareProcessNamespace", "Whether its containers see the processes of each other."},
    {"template.spec.subdomain", "Refused: the operator sets it to the name of the Service of the namespace's jobs."},
    {"template.spec.terminationGracePeriodSeconds", "Seconds from the request to end until it is killed."},
    {"template.spec.tolerations", "Taints of nodes that it tolerates."},
    {"template.spec.topologySpreadConstraints", "How it is spread over zones and nodes."},
    {"template.spec.volumes", "Volumes that its containers mount."},

    {"status", "What the operator sees. It is written by the operator alone and never read as a wish."},
    {"status.observedGeneration", "The metadata.generation that this status is about."},
    {"status.phase",
     "The conditions in one word, for people: Pending, Starting, Running, Recovering, Suspended, "
     "Finishing, Succeeded or Failed. Programs read the conditions."},
    {"status.reason", "Why the phase is what it is, in one line."},
    {"status.conditions",
     "One entry a type: SpecInvalid, TemplateInvalid, Blocked, Suspended, Scheduled, Clamped, Shrunk, Ready, "
     "RingFormed (the workers of all-reduce train together), GPUInUse (workers that asked for GPUs have them), "
     "Recovering, Restarting, ParametersLost, Resumed (it began "
     "with a checkpoint), CheckpointFailing and "
     "CheckpointTemporary, SuccessCriteriaMet and FailureTarget (the end is decided), Complete and Failed (every pod "
     "has ended)."},
    {"status.conditions[]", "One aspect of the state of the job, as metav1.Condition."},
    {"status.conditions[].type", "Type of the condition."},
    {"status.conditions[].status", "True, False or Unknown."},
    {"status.conditions[].reason", "Why, in one CamelCase word for programs."},
    {"status.conditions[].message", "Why, in a sentence for people."},
    {"status.conditions[].lastTransitionTime", "When the status of this condition changed last."},
    {"status.conditions[].observedGeneration", "The metadata.generation that this condition is about."},
    {"status.startTime", "When the job began to run. Resets when a suspended job goes on."},
    {"status.completionTime", "When the job was over, with every pod ended."},
    {"status.coordinator", "The coordinator's pod."},
    {"status.parameterServer", "The pods of the parameter servers."},
    {"status.worker", "The pods of the workers."},
    {"status.restarts", "Restarts of any pod since the job was made."},
    {"status.restarts.total", "All of them."},
    {"status.restarts.counted", "Those that count towards the limits of the failure policy."},
    {"status.membership", "The members as training sees them."},
    {"status.membership.epoch", "Raised by each change of the members."},
    {"status.recovery", "The newest recovery from a failure."},
    {"status.recovery.lastCause", "What had happened, as NodeLost or OOMKilled."},
    {"status.recovery.lastRole", "To which role."},
    {"status.recovery.lastStartTime", "When the failure was seen."},
    {"status.recovery.lastDurationSeconds",
     "Whole seconds from then until training went on with a new update. Absent while it does not."},
    {"status.recovery.phases", "Its parts in seconds, each absent until it is over or where it is not known."},
    {"status.recovery.phases.detect", "From the end of the pod, as the platform says it, until it was seen."},
    {"status.recovery.phases.schedule", "Until the last of the pods that take the place of those that ended runs."},
    {"status.recovery.phases.start", "Until all members are ready."},
    {"status.recovery.phases.restore", "Until the first new update."},
    {"status.recovery.step", "Updates applied when it began, or to which it fell back, if it did."},
    {"status.recovery.restoredFrom", "The checkpoint that training went back to. Absent: to none."},
    {"status.recovery.lostUpdates", "Updates that were applied and lost again. Absent: none, or not known."},
    {"status.recovery.lostSeconds", "Seconds of training that were lost. Absent: none, or not known."},
    {"status.recovery.skipped", "Newer checkpoints that were not used, and why."},
    {"status.update", "How the parameter servers apply updates; after a change of spec.update.mode as soon as all do."},
    {"status.update.mode", "As in spec.update."},
    {"status.update.staleness", "Of BoundedStaleness."},
    {"status.update.updatesPerStep", "Of Synchronous."},
    {"status.slices", "The slices of the parameters and who holds them. Absent: nothing is known yet."},
    {"status.slices.total", "All of them."},
    {"status.slices.inSync", "Those with a standby that has all that was acknowledged."},
    {"status.slices.moving", "Those that are being copied."},
    {"status.slices.parameterServers", "The indices of the parameter servers that hold some."},
    {"status.ring", "With AllReduce: the workers that train together. Absent: nothing is known yet."},
    {"status.ring.members", "How many they are."},
    {"status.ring.wanted", "How many there should be."},
    {"status.ring.formed", "Whether all of them have joined."},
    {"status.ring.formedCount", "How many times the coordinator that runs has put them together anew."},
    {"status.ring.updatesPerStep", "Updates of a step, shared out among them."},
    {"status.ring.message", "Why they are as they are, or what they wait for. Absent: they are as wanted."},
    {"status.leavingParameterServers",
     "Parameter servers that are to hold nothing, as their nodes are drained. The next one takes their place."},
    {"status.leavingParameterServers[].index", "Which one."},
    {"status.leavingParameterServers[].since", "Since when."},
    {"status.training", "What evaluations have decided so far. Absent: nothing."},
    {"status.training.stopReason",
     "Why training ends before all epochs are done, by spec.training.earlyStopping. Absent or empty: it does not."},
    {"status.training.rateReason",
     "Why the learning rate is less than the schedule says, by spec.training.reduceOnPlateau. Absent or empty: it is "
     "not."},
    {"status.training.best", "The model of the best evaluation so far. Absent: none is kept, or none is there yet."},
    {"status.training.best.epoch", "After so many epochs."},
    {"status.training.best.reason", "What it is best in."},
    {"status.training.best.path", "The file, once the job is done."},
    {"status.progress", "What training has done. It may be some seconds old; curves are in the metrics."},
    {"status.progress.step", "Updates applied."},
    {"status.progress.totalSteps", "Updates of the whole training. 0: not known yet."},
    {"status.progress.percent", "The share of totalSteps that is done."},
    {"status.progress.samplesPerSecond",
     "Samples of the training set a second, of all workers together. A decimal "
     "number as text; absent: not known."},
    {"status.progress.etaSeconds", "Seconds until training is over at this speed. Absent: not known."},
    {"status.progress.lastUpdateTime", "When these numbers were read."},
    {"status.progress.nextUpdateTime",
     "By when they are read again and, if they changed, written: jobs take turns, and where many run that may be "
     "minutes. Absent: within seconds."},
    {"status.progress.epoch", "The pass over the training set that is under way, from 1. 0: none has begun."},
    {"status.progress.loss", "Training loss, mean over the workers. A decimal number as text; absent: not known."},
    {"status.progress.testAccuracy",
     "Accuracy of the newest evaluation, 0 to 1. A decimal number as text; absent: none yet, or neither Accuracy nor "
     "BinaryAccuracy is among the metrics."},
    {"status.progress.testMetrics", "The metrics of the newest evaluation, in the order of spec.model.metrics."},
    {"status.progress.testMetrics[]", "One such metric."},
    {"status.progress.testMetrics[].name", "Its name, as in spec.model.metrics."},
    {"status.progress.testMetrics[].value", "Its mean over the whole test set. A decimal number as text."},
    {"status.incarnations",
     "Internal: the newest incarnation given out for each role and index, as worker-2: 3. It "
     "is stored before the pod is made, so that no incarnation is given out twice."},
    {"status.recentFailures",
     "Internal: restarts inside the window of the failure policy, oldest first. The limits "
     "and the back-off are computed from them."},
    {"status.failures", "The newest ten failures, oldest first. They stay when the pods are gone."},
    {"status.countedUids", "Internal: failed pods that are counted already, so that no failure counts twice."},
    {"status.absentWorkers",
     "Workers of an elastic job that do not run although they are wanted, by index. Those whose first start is under "
     "way are not listed."},
    {"status.absentWorkers[]", "One such worker."},
    {"status.absentWorkers[].index", "Its index."},
    {"status.absentWorkers[].state",
     "Waiting: it was started and is not there yet. Parked: it is given up, and tried again "
     "elastic.growCooldownSeconds after the newest one was. Retrying: it is tried again."},
    {"status.absentWorkers[].since", "Since when it is in this state."},
    {"status.output", "The final model, once it is written."},
    {"status.output.path", "The file."},
    {"status.output.worker", "Index of the worker that wrote it."},
    {"status.output.incarnation", "Which start of that worker."},
    {"status.output.keptUntil",
     "The pod of that worker stays until then, as the model goes with it. Absent: it does not stay."},
    {"status.checkpoint", "The newest checkpoint. Absent: none was tried."},
    {"status.checkpoint.newest", "Where it is. Absent: there is none yet."},
    {"status.checkpoint.updates", "Updates that it holds."},
    {"status.checkpoint.time", "When it was made."},
    {"status.checkpoint.failures", "Attempts of the coordinator that runs that failed."},
    {"status.checkpoint.error", "Why the newest attempt failed. Absent: it did not."},
    {"status.checkpointRequest", "Internal: a checkpoint that is wanted before a suspension or a drain."},
    {"status.checkpointRequest.name", "Internal: its name; another name is another wish."},
    {"status.checkpointRequest.since", "Internal: since when."},
    {"status.nodes", "With scheduling.avoidNodes: nodes on which pods of this job failed."},
    {"status.nodes[]", "One such node."},
    {"status.nodes[].name", "Its name."},
    {"status.nodes[].faultTimes", "When, inside the window of the failure policy and since it was avoided last."},
    {"status.nodes[].avoidedUntil", "New pods keep away from it until then. Absent: they do not."},
    {"status.lastProgressTime", "Internal: when lastProgressStep changed last, for spec.progressDeadlineSeconds."},
    {"status.lastProgressStep", "Internal: updates applied when they were last seen to grow."},
};

// Of the fields that the coordinator, the parameter servers and the workers have in common.
constexpr Description kRoleDescriptions[] = {
    {"desired", "Pods that should be there."},
    {"replicas", "Pods that are there and have not ended."},
    {"pending", "Pods that have not started."},
    {"ready", "Pods that are ready."},
    {"succeeded", "Pods that ended with success."},
    {"failed", "Pods that failed and are still there."},
    {"terminating", "Pods that are being deleted."},
    {"restarts", "Restarts of pods of this role since the job was made."},
    {"summary", "Ready and desired, as 7/8."},
    {"selector",
     "Label selector of the pods, as kubectl -l takes it. Of the workers it is what the scale subresource "
     "reports."},
};
constexpr Description kFailureDescriptions[] = {
    {"", "How one pod ended and what was done about it."},
    {"time", "When the failure was seen."},
    {"role", "Role of the pod."},
    {"index", "Index of the pod within its role."},
    {"incarnation", "Which start of this role and index it was, from 1."},
    {"uid", "The uid of the pod."},
    {"cause", "What happened, in one word: a reason of the pod or the container, as OOMKilled, or Exit and the code."},
    {"container",
     "Whose exit code and last line these are, as \"init container fetch\". Absent: those of the container trainer."},
    {"exitCode", "Exit code of that container. Absent: it left none."},
    {"action", "What was done about it."},
    {"counted", "Whether the restart counts towards the limits."},
    {"platform", "Whether the platform ended it, by preemption, a drain or the loss of its node, say."},
    {"message", "The same for people, in a sentence."},
    {"node", "The node that the pod ran on."},
    {"lastLogLine", "The last line that the container wrote."},
};
constexpr std::string_view kRolePaths[] = {"status.coordinator", "status.parameterServer", "status.worker"};
constexpr std::string_view kFailurePaths[] = {"status.recentFailures[]", "status.failures[]"};

// What a user may change while the job exists.
constexpr std::string_view kMutable[] = {"spec.suspend",
                                         "spec.parameterServer.replicas",
                                         "spec.parameterServer.disruption",
                                         "spec.parameterServer.maxProtectSeconds",
                                         "spec.worker.replicas",
                                         "spec.elastic",
                                         "spec.activeDeadlineSeconds",
                                         "spec.ttlSecondsAfterFinished",
                                         "spec.failurePolicy",
                                         "spec.podCleanup",
                                         "spec.update.mode",
                                         "spec.update.staleness",
                                         "spec.update.warmStart",
                                         "spec.update.updatesPerStep"};

// Relations between fields: those of CheckRelations that the types of lists do not already hold. $losses and $metrics
// stand for the names of kLosses and kMetrics.
struct Relation {
  std::string_view path;  // of the object that `rule` is about
  std::string_view field;
  std::string_view rule;
  std::string_view message;
  std::string_view reason = "FieldValueInvalid";
};
constexpr Relation kRelations[] = {
    {"spec", "parameterServer", "self.strategy != 'ParameterServer' || has(self.parameterServer)",
     "is required for the strategy ParameterServer", "FieldValueRequired"},
    {"spec", "parameterServer", "self.strategy != 'AllReduce' || !has(self.parameterServer)",
     "is not for the strategy AllReduce: it has no parameter servers"},
    {"spec", "podCleanup.parameterServer",
     "self.strategy != 'AllReduce' || !has(self.podCleanup) || !has(self.podCleanup.parameterServer)",
     "is not for the strategy AllReduce: it has no parameter servers"},
    {"spec", "checkpoint.extraMemory",
     "self.strategy != 'AllReduce' || !has(self.checkpoint) || !has(self.checkpoint.extraMemory)",
     "is not for the strategy AllReduce: it is that of parameter servers"},
    {"spec", "update.mode",
     "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.mode) || self.update.mode == 'Synchronous'",
     "must be Synchronous, or absent, with the strategy AllReduce: its workers take each step together"},
    {"spec", "update.warmStart", "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.warmStart)",
     "is not for the strategy AllReduce: no worker trains alone"},
    // With them go localOptimizer and fetchEvery.
    {"spec", "update.localSteps",
     "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.localSteps) || self.update.localSteps <= 1",
     "is not for the strategy AllReduce: what is added up is the gradients of values that all workers have"},
    {"spec", "update.codec",
     "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.codec) || "
     "self.update.codec in ['fp32', 'bf16']",
     "must be fp32 or bf16 with the strategy AllReduce: what the others leave out of a gradient has to be added to the "
     "next one, which workers that come and go do not have"},
    {"spec", "update.pullCodec",
     "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.pullCodec) || "
     "self.update.pullCodec == 'fp32'",
     "must be fp32 with the strategy AllReduce: no values are pulled"},
    {"spec", "update.optimizer",
     "self.strategy != 'AllReduce' || !has(self.update) || !has(self.update.optimizer) || "
     "((!has(self.update.optimizer.type) || self.update.optimizer.type != 'DelayCompensatedSGD') && "
     "(!has(self.update.optimizer.stalenessAware) || !self.update.optimizer.stalenessAware) && "
     "(!has(self.update.optimizer.stalenessRule) || self.update.optimizer.stalenessRule != 'Gap'))",
     "with the strategy AllReduce no update is late: neither DelayCompensatedSGD nor stalenessAware nor Gap"},
    {"spec", "update.updatesPerStep",
     "!has(self.update) || !has(self.update.updatesPerStep) || !has(self.elastic) || "
     "!has(self.elastic.batchPolicy) || self.elastic.batchPolicy != 'ScaleLearningRate'",
     "is for the batchPolicy KeepGlobalBatch: with ScaleLearningRate a step has one update of each worker"},
    {"spec", "update.updatesPerStep",
     "self.strategy != 'AllReduce' || (has(self.update) && has(self.update.updatesPerStep) ? "
     "self.update.updatesPerStep : 0) == (has(oldSelf.update) && has(oldSelf.update.updatesPerStep) ? "
     "oldSelf.update.updatesPerStep : 0)",
     "cannot be changed with the strategy AllReduce", "FieldValueForbidden"},
    {"spec", "elastic.batchPolicy",
     "self.strategy == 'AllReduce' || !has(self.elastic) || !has(self.elastic.batchPolicy)",
     "is for the strategy AllReduce"},
    {"spec", "elastic.batchPolicy",
     "(has(self.elastic) && has(self.elastic.batchPolicy) && self.elastic.batchPolicy == 'ScaleLearningRate') == "
     "(has(oldSelf.elastic) && has(oldSelf.elastic.batchPolicy) && oldSelf.elastic.batchPolicy == "
     "'ScaleLearningRate')",
     "cannot be changed", "FieldValueForbidden"},
    {"spec", "elastic.stateCopies",
     "self.strategy == 'AllReduce' || !has(self.elastic) || !has(self.elastic.stateCopies)",
     "is for the strategy AllReduce"},
    {"spec", "elastic.stateCopies",
     "!has(self.elastic) || !has(self.elastic.stateCopies) || !has(self.update) || !has(self.update.optimizer) || "
     "!has(self.update.optimizer.type) || self.update.optimizer.type != 'LAMB'",
     "is not for the optimizer LAMB: its rule takes the norms of whole layers, of which a worker updates a part"},
    {"spec", "elastic.stateCopies",
     "(has(self.elastic) && has(self.elastic.stateCopies) ? self.elastic.stateCopies : 0) == "
     "(has(oldSelf.elastic) && has(oldSelf.elastic.stateCopies) ? oldSelf.elastic.stateCopies : 0)",
     "cannot be changed", "FieldValueForbidden"},
    {"spec.parameterServer", "replicas",
     "!has(self.replicationFactor) || self.replicationFactor <= (has(self.replicas) ? self.replicas : 1)",
     "must be at least replicationFactor"},
    {"spec.parameterServer", "replication",
     "!has(self.replication) || (has(self.replicationFactor) && self.replicationFactor > 1)",
     "is for a replicationFactor of more than 1"},
    {"spec.parameterServer.replication", "maxLag", "!has(self.maxLag) || (has(self.type) && self.type == 'Async')",
     "is for the type Async"},
    {"spec", "parameterServer.replication.type",
     "!has(self.parameterServer) || !has(self.parameterServer.replication) || "
     "!has(self.parameterServer.replication.type) || self.parameterServer.replication.type != 'Async' || "
     "!has(self.update) || !has(self.update.mode) || !(self.update.mode in ['Synchronous', 'Sandblaster'])",
     "must not be Async in the modes Synchronous and Sandblaster"},
    {"spec", "worker.gpus",
     "!has(self.worker.gpus) || self.worker.gpus <= "
     "(has(self.training) && has(self.training.batchSize) ? self.training.batchSize : 128)",
     "must be at most spec.training.batchSize"},
    {"spec", "worker.gpus",
     "!has(self.worker.gpus) || self.worker.gpus == 1 || !has(self.update) || !has(self.update.localSteps) || "
     "self.update.localSteps == 1",
     "must be 1 with spec.update.localSteps: several GPUs take no steps of their own"},
    {"spec.elastic", "minReplicas", "self.minReplicas <= self.maxReplicas", "must be at most maxReplicas"},
    {"spec.failurePolicy.backoff", "initialSeconds",
     "(has(self.initialSeconds) ? self.initialSeconds : 1) <= (has(self.maxSeconds) ? self.maxSeconds : 300)",
     "must be at most maxSeconds"},
    {"spec.model", "",
     "(has(self.name) ? 1 : 0) + (has(self.layers) ? 1 : 0) + (has(self.torchScript) ? 1 : 0) + "
     "(has(self.plugin) && has(self.plugin.name) ? 1 : 0) == 1",
     "must have exactly one of name, layers, plugin.name and torchScript"},
    {"spec.training", "precision",
     "!has(self.precision) || self.precision != 'tf32' || !has(self.device) || self.device != 'CPU'",
     "tf32 is not for the device CPU: it is how a GPU multiplies"},
    {"spec.training", "steps", "!has(self.steps) || !has(self.epochs)", "is not for a job of so many epochs"},
    {"spec", "training",
     "!has(self.training) || !has(self.training.steps) || !has(self.update) || !has(self.update.mode) || "
     "self.update.mode != 'Sandblaster'",
     "has no steps in the mode Sandblaster"},
    {"spec.training", "earlyStopping", "!has(self.earlyStopping) || !has(self.evaluate) || self.evaluate",
     "needs spec.training.evaluate: true"},
    {"spec", "training.earlyStopping.metric",
     "!has(self.training) || !has(self.training.earlyStopping) || !has(self.training.earlyStopping.metric) || "
     "self.training.earlyStopping.metric == 'Loss' || (has(self.model.metrics) && "
     "self.training.earlyStopping.metric in self.model.metrics)",
     "must be Loss or one of spec.model.metrics"},
    {"spec", "training.earlyStopping",
     "!has(self.training) || !has(self.training.earlyStopping) || !has(self.update) || !has(self.update.mode) || "
     "self.update.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.training", "reduceOnPlateau", "!has(self.reduceOnPlateau) || !has(self.evaluate) || self.evaluate",
     "needs spec.training.evaluate: true"},
    {"spec", "training.reduceOnPlateau.metric",
     "!has(self.training) || !has(self.training.reduceOnPlateau) || !has(self.training.reduceOnPlateau.metric) || "
     "self.training.reduceOnPlateau.metric == 'Loss' || (has(self.model.metrics) && "
     "self.training.reduceOnPlateau.metric in self.model.metrics)",
     "must be Loss or one of spec.model.metrics"},
    {"spec", "training.reduceOnPlateau",
     "!has(self.training) || !has(self.training.reduceOnPlateau) || !has(self.update) || !has(self.update.mode) || "
     "self.update.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.training", "keepBest", "!has(self.keepBest) || !has(self.evaluate) || self.evaluate",
     "needs spec.training.evaluate: true"},
    {"spec", "training.keepBest.metric",
     "!has(self.training) || !has(self.training.keepBest) || !has(self.training.keepBest.metric) || "
     "self.training.keepBest.metric == 'Loss' || (has(self.model.metrics) && "
     "self.training.keepBest.metric in self.model.metrics)",
     "must be Loss or one of spec.model.metrics"},
    {"spec", "training.keepBest",
     "!has(self.training) || !has(self.training.keepBest) || !has(self.update) || !has(self.update.mode) || "
     "self.update.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.training.reduceOnPlateau", "factor", "!has(self.factor) || self.factor < 1.0", "must be below 1"},
    {"spec", "training.reduceOnPlateau.minLearningRate",
     "!has(self.training) || !has(self.training.reduceOnPlateau) || "
     "!has(self.training.reduceOnPlateau.minLearningRate) || self.training.reduceOnPlateau.minLearningRate < "
     "(!has(self.update) ? 0.01 : has(self.update.localOptimizer) ? (has(self.update.localOptimizer.learningRate) ? "
     "self.update.localOptimizer.learningRate : 0.01) : has(self.update.optimizer) && "
     "has(self.update.optimizer.learningRate) ? self.update.optimizer.learningRate : 0.01)",
     "must be below the learningRate of localOptimizer, or of optimizer where there is none"},
    {"spec", "training.keepBest",
     "!has(self.training) || !has(self.training.keepBest) || (has(self.output) && has(self.output.directory) && "
     "size(self.output.directory) > 0)",
     "needs spec.output.directory, a folder that all workers have"},
    {"spec.model", "parameters", "!has(self.parameters) || has(self.name)", "is for a network with a name"},
    {"spec.model.plugin", "parameters", "!has(self.parameters) || has(self.name)", "is for a network of the plug-in"},
    {"spec.model", "loss", "has(self.plugin) || !has(self.loss) || !has(self.loss.type) || self.loss.type in [$losses]",
     "must be one of $losses"},
    {"spec.model", "metrics",
     "has(self.plugin) || !has(self.metrics) || self.metrics.all(metric, metric in [$metrics])", "must be of $metrics"},
    {"spec.dataset", "path", "(self.format != 'Synthetic') == has(self.path)",
     "is required, but for the format Synthetic"},
    {"spec.dataset", "testPath", "!has(self.testPath) || !(self.format in ['IDX', 'CIFAR10', 'CIFAR100', 'Synthetic'])",
     "is not for a format that has a test set"},
    {"spec.dataset", "split",
     "!has(self.split) || !(has(self.testPath) || self.format in ['IDX', 'CIFAR10', 'CIFAR100', 'Synthetic'])",
     "is for data without a test set"},
    {"spec", "dataset",
     "self.dataset.format in ['IDX', 'CIFAR10', 'CIFAR100', 'Synthetic'] || has(self.dataset.testPath) || "
     "has(self.dataset.split) || (has(self.training) && has(self.training.evaluate) && !self.training.evaluate)",
     "needs testPath or split, or training.evaluate: false", "FieldValueRequired"},
    {"spec.dataset", "csv", "!has(self.csv) || self.format == 'CSV'", "is for the format CSV"},
    {"spec.dataset", "textLayout", "!has(self.textLayout) || self.format == 'Text'", "is for the format Text"},
    {"spec.dataset", "shuffleBlock", "!has(self.shuffleBlock) || (has(self.shuffle) && self.shuffle == 'Blocks')",
     "is for the shuffle Blocks"},
    {"spec.dataset", "classNames",
     "!has(self.classNames) || self.classNames.size() == 0 || self.format in ['ImageFolder', 'Text']",
     "is for the formats ImageFolder, Text"},
    {"spec.dataset", "channels",
     "!has(self.channels) || (self.format in ['ImageFolder', 'TFRecord', 'WebDataset'] && self.channels != 2)",
     "is for the formats ImageFolder, TFRecord, WebDataset, and 1 or 3"},
    {"spec.dataset", "columns",
     "!has(self.columns) || self.columns.size() == 0 || self.format in ['CSV', 'Parquet', 'SafeTensors', 'TFRecord', "
     "'WebDataset']",
     "is for the formats CSV, Parquet, SafeTensors, TFRecord, WebDataset"},
    {"spec.dataset", "columns",
     "!has(self.columns) || self.columns.all(column, has(column.type) == (self.format in ['CSV', 'TFRecord']))",
     "have a type in the formats CSV and TFRecord, and only there"},
    {"spec.dataset", "columns",
     "!has(self.columns) || self.columns.all(column, !has(column.type) || column.type in ['i64', 'fp32', 'text'] || "
     "(self.format == 'CSV') == (column.type in ['u8', 'i32', 'categorical']))",
     "must have types of the format"},
    {"spec.dataset", "columns",
     "!has(self.columns) || self.columns.all(column, !has(column.shape) || column.shape.size() == 0 || (self.format == "
     "'TFRecord' && "
     "has(column.type) "
     "&& column.type in ['i64', 'fp32', 'bytes']))",
     "have a shape in the types i64, fp32, bytes of the format TFRecord"},
    {"spec.dataset", "columns",
     "!has(self.columns) || self.columns.all(column, !has(column.classNames) || column.classNames.size() == 0 || "
     "(has(column.type) && column.type == "
     "'categorical'))",
     "have classNames in the type categorical of the format CSV"},
    {"spec.dataset.fields[]", "", "has(self.column) != (has(self.columns) && self.columns.size() > 0)",
     "must have exactly one of column and columns"},
    {"spec.dataset.fields[]", "classes", "!has(self.classes) || has(self.column)",
     "is not for a field of several columns"},
    {"spec.dataset.fields[]", "name", "has(self.name) || has(self.column)",
     "is required for a field of several columns"},
    {"spec.dataset.transforms[]", "height", "has(self.height) == (self.type in ['Resize', 'CenterCrop', 'RandomCrop'])",
     "is required for the types Resize, CenterCrop, RandomCrop, and only there"},
    {"spec.dataset.transforms[]", "width", "has(self.width) == (self.type in ['Resize', 'CenterCrop', 'RandomCrop'])",
     "is required for the types Resize, CenterCrop, RandomCrop, and only there"},
    {"spec.dataset.transforms[]", "padding", "!has(self.padding) || self.type == 'RandomCrop'",
     "is for the type RandomCrop"},
    {"spec.dataset.transforms[]", "probability", "!has(self.probability) || self.type == 'RandomFlip'",
     "is for the type RandomFlip"},
    {"spec.dataset.transforms[]", "",
     "!(has(self.brightness) || has(self.contrast) || has(self.saturation)) || self.type == 'ColorJitter'",
     "brightness, contrast and saturation are for the type ColorJitter"},
    {"spec.dataset.transforms[]", "",
     "self.type == 'Normalize' ? has(self.mean) && has(self.std) && self.mean.size() > 0 && self.mean.size() == "
     "self.std.size() : (!has(self.mean) || self.mean.size() == 0) && (!has(self.std) || self.std.size() == 0)",
     "has mean and std, as many numbers of both, if its type is Normalize, and else none"},
    {"spec.dataset.transforms[]", "vocabulary", "has(self.vocabulary) == (self.type == 'Tokenize')",
     "is required for the type Tokenize, and only there"},
    {"spec.dataset.transforms[]", "maxLength", "!has(self.maxLength) || self.type == 'Tokenize'",
     "is for the type Tokenize"},
    {"spec.dataset.transforms[]", "classes", "!has(self.classes) || self.type == 'OneHot'", "is for the type OneHot"},
    {"spec.dataset.transforms[]", "dtype", "has(self.dtype) == (self.type == 'Cast')",
     "is required for the type Cast, and only there"},
    {"spec.dataset", "synthetic", "(self.format == 'Synthetic') == has(self.synthetic)",
     "is required for the format Synthetic, and only there"},
    {"spec.model.loss", "labelSmoothing",
     "!has(self.labelSmoothing) || (has(self.type) && self.type == 'CrossEntropy')", "is for the type CrossEntropy"},
    {"spec.model.loss", "delta", "!has(self.delta) || (has(self.type) && self.type == 'Huber')",
     "is for the type Huber"},
    {"spec.update", "accumulate",
     "!has(self.accumulate) || !has(self.localSteps) || self.accumulate <= 1 || self.localSteps <= 1",
     "is not for localSteps of more than 1"},
    {"spec.update", "localOptimizer", "has(self.localOptimizer) == (has(self.localSteps) && self.localSteps > 1)",
     "is required for localSteps of more than 1, and only there"},
    {"spec.update", "fetchEvery",
     "!has(self.fetchEvery) || self.fetchEvery <= 1 || (has(self.localSteps) && self.localSteps > 1)",
     "is for localSteps of more than 1"},
    {"spec.update.localOptimizer", "momentum", "!has(self.momentum) || (has(self.type) && self.type == 'Momentum')",
     "is for the type Momentum"},
    {"spec.update.localOptimizer", "beta1", "!has(self.beta1) || (has(self.type) && self.type in ['Adam', 'AdamW'])",
     "is for the types Adam and AdamW"},
    {"spec.update.localOptimizer", "beta2", "!has(self.beta2) || (has(self.type) && self.type in ['Adam', 'AdamW'])",
     "is for the types Adam and AdamW"},
    {"spec.update.localOptimizer", "epsilon",
     "!has(self.epsilon) || (has(self.type) && self.type in ['Adam', 'AdamW'])", "is for the types Adam and AdamW"},
    {"spec", "update.updatesPerStep",
     "!has(self.update) || !has(self.update.updatesPerStep) || (has(self.update.mode) ? "
     "self.update.mode == 'Synchronous' : self.strategy == 'AllReduce')",
     "is for the mode Synchronous"},
    {"spec.update", "warmStart", "!has(self.warmStart) || !has(self.mode) || self.mode != 'Synchronous'",
     "is not for the mode Synchronous"},
    {"spec.update", "fetchEvery",
     "!has(self.fetchEvery) || self.fetchEvery <= 1 || !has(self.mode) || self.mode == 'Async'",
     "is for the mode Async"},
    {"spec.update", "fetchEvery",
     "!has(self.fetchEvery) || self.fetchEvery <= 1 || !has(self.optimizer) || ((!has(self.optimizer.type) || "
     "self.optimizer.type != 'DelayCompensatedSGD') && (!has(self.optimizer.stalenessRule) || "
     "self.optimizer.stalenessRule != 'Gap'))",
     "is not for DelayCompensatedSGD and the stalenessRule Gap"},
    {"spec.update", "optimizer",
     "!has(self.mode) || self.mode != 'Synchronous' || !has(self.optimizer) || ((!has(self.optimizer.type) || "
     "self.optimizer.type != 'DelayCompensatedSGD') && (!has(self.optimizer.stalenessAware) || "
     "!self.optimizer.stalenessAware) && (!has(self.optimizer.stalenessRule) || self.optimizer.stalenessRule != "
     "'Gap'))",
     "in the mode Synchronous no update is late: neither DelayCompensatedSGD nor stalenessAware nor Gap"},
    {"spec.update", "staleness", "!has(self.staleness) || (has(self.mode) && self.mode == 'BoundedStaleness')",
     "is for the mode BoundedStaleness"},
    {"spec.update", "lbfgs", "!has(self.lbfgs) || (has(self.mode) && self.mode == 'Sandblaster')",
     "is for the mode Sandblaster"},
    {"spec.update", "optimizer", "!has(self.optimizer) || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "schedule", "!has(self.schedule) || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update.schedule", "gamma", "!has(self.gamma) || (has(self.type) && self.type in ['Step', 'Exponential'])",
     "only with Step, Exponential"},
    {"spec.update.schedule", "gamma", "!has(self.type) || self.type != 'Exponential' || has(self.gamma)",
     "is required for the type Exponential", "FieldValueRequired"},
    {"spec.update.schedule", "every", "!has(self.every) || (has(self.type) && self.type in ['Step', 'Exponential'])",
     "only with Step, Exponential"},
    {"spec.update.schedule", "every", "!has(self.type) || self.type != 'Step' || has(self.every)",
     "is required for the type Step", "FieldValueRequired"},
    {"spec.update.schedule.every", "", "has(self.updates) != has(self.epochs)",
     "must have exactly one of updates and epochs"},
    {"spec.update.schedule", "etaMin", "!has(self.etaMin) || (has(self.type) && self.type == 'Cosine')",
     "only with Cosine"},
    {"spec.update.schedule", "pctStart", "!has(self.pctStart) || (has(self.type) && self.type == 'OneCycle')",
     "only with OneCycle"},
    {"spec.update.schedule", "divFactor", "!has(self.divFactor) || (has(self.type) && self.type == 'OneCycle')",
     "only with OneCycle"},
    {"spec.update.schedule", "finalDivFactor",
     "!has(self.finalDivFactor) || (has(self.type) && self.type == 'OneCycle')", "only with OneCycle"},
    {"spec.update.schedule.warmup", "", "has(self.updates) != has(self.fraction)",
     "must have exactly one of updates and fraction"},
    {"spec.update", "clipNorm", "!has(self.clipNorm) || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "accumulate",
     "!has(self.accumulate) || self.accumulate <= 1 || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "localSteps",
     "!has(self.localSteps) || self.localSteps <= 1 || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "codec",
     "!has(self.codec) || self.codec == 'fp32' || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "pullCodec",
     "!has(self.pullCodec) || self.pullCodec == 'fp32' || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.update", "mode",
     "(has(self.mode) && self.mode == 'Sandblaster') == (has(oldSelf.mode) && oldSelf.mode == 'Sandblaster')",
     "cannot change to Sandblaster or from it"},
    {"spec.update", "warmStart", "!has(self.warmStart) || !has(self.mode) || self.mode != 'Sandblaster'",
     "is not for the mode Sandblaster"},
    {"spec.checkpoint", "uri", "self.uri.startsWith('/') || self.uri.matches('^s3://[-a-z0-9.]{3,63}(/|$)')",
     "must be an absolute path or s3://BUCKET/PREFIX"},
    {"spec", "checkpoint",
     "!has(self.checkpoint) || !has(self.checkpoint.keepBest) || (has(self.model.metrics) && "
     "self.checkpoint.keepBest in self.model.metrics)",
     "keepBest must be one of spec.model.metrics"},
    {"spec", "checkpoint",
     "!has(self.checkpoint) || !has(self.checkpoint.keepBest) || !has(self.training) || "
     "!has(self.training.evaluate) || self.training.evaluate",
     "keepBest needs spec.training.evaluate: true"},
    {"spec.tracking.tensorboard", "directory", "self.directory.startsWith('/')", "must be an absolute path"},
    {"spec.update", "topK", "!has(self.topK) || (has(self.codec) && self.codec == 'topK')", "is for the codec topK"},
    {"spec.update.optimizer", "momentum",
     "!has(self.momentum) || (has(self.type) && self.type in ['Momentum', 'Nesterov'])",
     "only with Momentum, Nesterov"},
    {"spec.update.optimizer", "beta1", "!has(self.beta1) || (has(self.type) && self.type in ['Adam', 'AdamW', 'LAMB'])",
     "only with Adam, AdamW, LAMB"},
    {"spec.update.optimizer", "beta2", "!has(self.beta2) || (has(self.type) && self.type in ['Adam', 'AdamW', 'LAMB'])",
     "only with Adam, AdamW, LAMB"},
    {"spec.update.optimizer", "epsilon",
     "!has(self.epsilon) || (has(self.type) && self.type in ['Adagrad', 'RMSProp', 'Adam', 'AdamW', 'LAMB', "
     "'DelayCompensatedSGD'])",
     "only with Adagrad, RMSProp, Adam, AdamW, LAMB, DelayCompensatedSGD"},
    {"spec.update.optimizer", "decay",
     "!has(self.decay) || (has(self.type) && self.type in ['RMSProp', 'DelayCompensatedSGD'])",
     "only with RMSProp, DelayCompensatedSGD"},
    {"spec.update.optimizer", "initialAccumulator",
     "!has(self.initialAccumulator) || (has(self.type) && self.type == 'Adagrad')", "only with Adagrad"},
    {"spec.update.optimizer", "compensation",
     "!has(self.compensation) || (has(self.type) && self.type == 'DelayCompensatedSGD')",
     "only with DelayCompensatedSGD"},
    {"spec.update.optimizer", "lambda", "!has(self.lambda) || (has(self.type) && self.type == 'DelayCompensatedSGD')",
     "only with DelayCompensatedSGD"},
    {"spec.update.optimizer", "compensation",
     "!has(self.compensation) || self.compensation == 'Adaptive' || (!has(self.epsilon) && !has(self.decay))",
     "Constant has neither epsilon nor decay"},
    {"spec.update.optimizer", "noDecay",
     "!has(self.noDecay) || size(self.noDecay) == 0 || (has(self.weightDecay) ? self.weightDecay > 0.0 : "
     "has(self.type) && self.type in ['AdamW', 'LAMB'])",
     "needs a weightDecay greater than 0"},
    {"spec.update.optimizer", "stalenessRule",
     "!has(self.stalenessRule) || self.stalenessRule == 'Divide' || !has(self.stalenessAware) || self.stalenessAware",
     "Gap needs stalenessAware: true"},
    {"spec.failurePolicy.rules[]", "",
     "(has(self.roles) && size(self.roles) > 0) || (has(self.onPodConditions) && size(self.onPodConditions) > 0) || "
     "(has(self.onContainerReasons) && size(self.onContainerReasons) > 0) || has(self.onExitCodes)",
     "must have at least one of roles, onPodConditions, onContainerReasons, onExitCodes"},
};

static_assert(kParameterServers == 1, "a relation above has it as well");
static_assert(LocalOptimizerSpec{}.learning_rate == 0.01, "a relation above has it as well");
static_assert(Backoff{}.initial_seconds == 1 && Backoff{}.max_seconds == 300, "a relation above has them as well");

// Lists of objects whose items have keys. The API server refuses two items with one key. Other lists of the spec are
// sets, those of the status are replaced as a whole.
struct ListKeys {
  std::string_view path;
  std::string_view keys[2];
};
constexpr ListKeys kListKeys[] = {{"spec.failurePolicy.rules", {"name", ""}},
                                  {"spec.failurePolicy.rules[].onPodConditions", {"type", "status"}},
                                  {"status.conditions", {"type", ""}}};

constexpr std::string_view kLabel1035 = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
constexpr std::string_view kLabel1123 = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
constexpr TextPattern kTextPatterns[] = {
    {schema::AnyText, 0, "", ""},
    {schema::IsShortText, 253, "", "", "size(bytes(self)) <= 253"},
    {schema::IsJobName, 40, kLabel1035, "Upper"},
    {schema::IsNamespace, 63, kLabel1123, "Upper"},
    {schema::IsRuleName, 63, kLabel1035, "Upper"},
    {schema::IsQualifiedName, 317,
     "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?"
     "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
     "a b", "self.indexOf('/') <= 253"},
    {schema::IsLabelValue, 63, "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", "a b"},
    {schema::IsReason, 128, "^[A-Za-z0-9]+$", "a b"},
    {schema::IsManagedBy, 63,
     "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
     "a b"},
    {schema::IsParameterPattern, 253, "^[A-Za-z0-9_.*]+$", "a b"},
    {schema::IsPluginName, 63, "^[A-Za-z0-9_]+$", "a b"},
    {schema::IsPath, 4096, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 4096"},
    {schema::IsPathOrEmpty, 4096, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 4096"},
    {schema::IsCheckpointUri, 4096, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 4096"},  // and a relation
    {schema::IsFile, 4096, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 4096 && !self.contains('://')"},
    {schema::IsDirectory, 4096, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 4096 && !self.contains('://')"},
    {schema::IsLine, 250, "^[^\\x00-\\x1f\\x7f]+$", "\n", "size(bytes(self)) <= 250"},
    {schema::IsLineOrEmpty, 250, "^[^\\x00-\\x1f\\x7f]*$", "\n", "size(bytes(self)) <= 250"},
    {schema::IsColumnName, 128, "^[^\\x00-\\x1f\\x7f]+$", "\n"},
    {schema::IsOneCharacter, 1, "^[\\t -~]$", "\n"},
    {schema::IsHttpUriOrEmpty, 4096, "^(https?://[^/@?# \\x00-\\x1f\\x7f][^@?# \\x00-\\x1f\\x7f]*)?$", "a b",
     "size(bytes(self)) <= 4096"},
    {schema::IsMemory, 17, "^[1-9][0-9]{0,14}([kMGTPE]|[KMGTPE]i)?$", "0"},
};

std::string CelText(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// The names of a table, each as `text` writes it.
template <class Value, std::size_t n>
std::string NamesOf(const schema::Name<Value> (&table)[n], std::string (*text)(std::string_view)) {
  std::string names;
  for (const schema::Name<Value>& entry : table) names += (names.empty() ? "" : ", ") + text(entry.name);
  return names;
}

std::string WithNames(std::string_view relation, std::string (*text)(std::string_view)) {
  return absl::StrReplaceAll(std::string(relation), {{"$losses", NamesOf(schema::kLosses, text)},
                                                     {"$metrics", NamesOf(schema::kMetrics, text)}});
}

bool StartsWithPath(std::string_view path, std::string_view parent) {
  return path.starts_with(parent) && path.size() > parent.size() && path[parent.size()] == '.';
}

// Whether nothing at the path or below it may change.
bool IsImmutable(const std::string& path) {
  if (!path.starts_with("spec.")) return false;
  return std::none_of(std::begin(kMutable), std::end(kMutable), [&](std::string_view changeable) {
    return changeable == path || StartsWithPath(path, changeable) || StartsWithPath(changeable, path);
  });
}

// The field is immutable and the object that it is in is not, as a whole.
bool NeedsTransitionRule(const std::string& path) {
  if (!IsImmutable(path)) return false;
  const std::string parent = path.substr(0, path.rfind('.'));
  return parent == "spec" || !IsImmutable(parent);
}

// Whether the API server stores the default of the field with each job. So it does with what stands in spec itself,
// with the number of workers, which the scale subresource reads, and with an empty spec.update: rules compare a part of
// it with what it was, and need one that was there. All the others are said in the description: they would be more than
// half of what is stored of a job, and the API server goes through all of it with each status.
bool StoresDefault(std::string_view path, bool is_object) {
  const bool in_spec = path.find('.') == path.rfind('.');
  return path == "spec.worker" || path == "spec.worker.replicas" || path == "spec.update" || (in_spec && !is_object);
}

// What is added to a description.
struct Notes {
  bool unsupported = false;
  bool immutable = false;
  std::string preset;
};

// Writes the schema of one value after another.
class SchemaWriter {
 public:
  // What a part of the resource is written with.
  struct Style {
    bool defaults = false;          // that are stored or said, and what is required
    bool preserve_unknown = false;  // of every object
  };

  SchemaWriter() {
    for (const Description& row : kDescriptions) descriptions_.emplace(row.path, row.text);
    for (const std::string_view path : kRolePaths) {
      for (const Description& row : kRoleDescriptions) {
        descriptions_.emplace(absl::StrCat(std::string(path), ".", std::string(row.path)), row.text);
      }
    }
    for (const std::string_view path : kFailurePaths) {
      for (const Description& row : kFailureDescriptions) {
        const std::string below = row.path.empty() ? "" : absl::StrCat(".", std::string(row.path));
        descriptions_.emplace(std::string(path) + below, row.text);
      }
    }
  }

  Json Root() {
    TrainingJobSpec spec;
    TrainingJobStatus status;
    Json json = Begin("", "object", "");
    Json& properties = json["properties"];
    properties["apiVersion"] = Begin("apiVersion", "string", "");
    properties["kind"] = Begin("kind", "string", "");
    // Described by the API server; the schema may only limit the name. It is here so that a rule can point at it.
    properties["metadata"] = {{"type", "object"}, {"properties", {{"name", {{"type", "string"}}}}}};
    style_ = {.defaults = true};
    properties["spec"] = Write(spec, schema::Object{}, "spec", Notes());
    style_ = {};
    properties["status"] = Write(status, schema::Object{}, "status", Notes());
    // It has one writer, who replaces it as a whole. Else the API server would keep who owns each of its fields, which
    // takes more room than the status itself and much of the time of each write.
    properties["status"]["x-kubernetes-map-type"] = "atomic";
    json["required"] = {"spec"};
    const TextPattern& name = PatternOf(schema::IsJobName, "metadata.name");
    json["x-kubernetes-validations"] = {
        Validation(absl::StrCat("size(self.metadata.name) <= ", name.max_length),
                   schema::IsJobName(std::string(name.max_length + 1, 'a')), ".metadata.name"),
        Validation(absl::StrCat("self.metadata.name.matches(", CelText(name.pattern), ")"),
                   schema::IsJobName(name.refused), ".metadata.name")};
    return json;
  }

  std::vector<std::string> TakeProblems() {
    for (const auto& [path, text] : descriptions_) {
      if (!described_.contains(path)) problems_.push_back("no field has the description of " + path);
    }
    for (const Relation& relation : kRelations) {
      if (!objects_.contains(std::string(relation.path)))
        problems_.push_back("no object has the relation of " + std::string(relation.path));
    }
    for (const std::string_view path : kMutable) {
      if (!described_.contains(std::string(path))) problems_.push_back("no field is changed by " + std::string(path));
    }
    for (const ListKeys& list : kListKeys) {
      if (!lists_.contains(std::string(list.path))) {
        problems_.push_back("no list has the keys of " + std::string(list.path));
      }
    }
    return std::move(problems_);
  }

 private:
  // Visits the fields of one object.
  struct Object {
    template <class Value, class Rule>
    void Field(std::string_view name, Value& value, const Rule& rule, Presence presence = Presence::kOptional) {
      const std::string at = absl::StrCat(path, ".", std::string(name));
      const bool unsupported = presence == Presence::kUnsupported;
      const bool frozen = !unsupported && NeedsTransitionRule(at);
      Notes notes{.unsupported = unsupported, .immutable = frozen, .preset = {}};
      Json& property = properties[std::string(name)];
      if constexpr (kIsOptional<Value>) {
        typename Value::value_type inner{};
        property = writer.Write(inner, rule, at, notes);
      } else {
        const bool has_default = writer.style_.defaults && presence == Presence::kOptional;
        Json preset = has_default ? Default(value, rule) : Json();
        notes.preset = TextOf(preset);
        property = writer.Write(value, rule, at, notes);
        constexpr bool kIsObject = std::is_same_v<Rule, schema::Object>;
        if (has_default && StoresDefault(at, kIsObject)) {
          if (kIsObject) preset = DefaultsOf(property);
          if (!preset.is_null()) property["default"] = std::move(preset);
        }
      }
      if (writer.style_.defaults || writer.style_.preserve_unknown || path == "status.conditions[]") {
        if (presence == Presence::kRequired) required.push_back(name);
      }
      // Rules stand at the field itself: each name in one of the object around it costs the API server a look at all
      // fields there, and it evaluates all rules with each status that is written.
      if (unsupported) {
        property["x-kubernetes-validations"].push_back(
            Validation("false", "is not supported yet", "", "", "FieldValueForbidden"));
      }
      if (frozen) {
        property["x-kubernetes-validations"].push_back(
            Validation(HasOpaque(property) ? "self == oldSelf && oldSelf == self" : "self == oldSelf",
                       "cannot be changed", "", "", "FieldValueForbidden"));
        if (presence == Presence::kOptional && !property.contains("default")) {
          const std::string field = absl::StrCat(".", std::string(name));
          validations.push_back(Validation(absl::StrCat("has(self", field, ") == has(oldSelf", field, ")"),
                                           "cannot be changed", field, "", "FieldValueForbidden"));
        }
      }
    }
    void Dropped(std::string_view) {}

    SchemaWriter& writer;
    std::string path;
    Json properties = Json::object();
    Json required = Json::array();
    Json validations = Json::array();
  };

  // No number is put into a message: the server takes its text to be as long as a request.
  static Json Validation(const std::string& rule, std::string_view message, const std::string& field_path = "",
                         std::string_view message_expression = {}, std::string_view reason = "FieldValueInvalid") {
    Json json;
    json["rule"] = rule;
    json["message"] = message;
    if (!message_expression.empty()) json["messageExpression"] = message_expression;
    if (!field_path.empty()) json["fieldPath"] = field_path;
    json["reason"] = reason;
    return json;
  }

  const TextPattern& PatternOf(schema::TextCheck check, const std::string& path) {
    for (const TextPattern& pattern : kTextPatterns) {
      if (pattern.check == check) return pattern;
    }
    problems_.push_back("no pattern for the text of " + path);
    return kTextPatterns[0];
  }

  Json Begin(const std::string& path, std::string_view type, std::string_view format, const Notes& notes = Notes(),
             const std::string& extra = "") {
    const std::size_t cut = path.find(".template.");
    const std::string row = cut == std::string::npos || !path.starts_with("spec.") ? path : path.substr(cut + 1);
    const auto found = descriptions_.find(row);
    described_.insert(row);
    const bool item = path.ends_with("[]");  // described where the list or the map is
    if (found == descriptions_.end() && !item) problems_.push_back("no description of " + path);
    std::string text = found == descriptions_.end() ? "" : std::string(found->second);
    if (notes.unsupported) text = "Not supported yet, and refused. " + text;
    text += extra;
    if (!notes.preset.empty()) text += " Default: " + notes.preset + ".";
    if (notes.immutable) text += " It cannot be changed.";
    Json json;
    if (!text.empty()) json["description"] = text;
    if (!type.empty()) json["type"] = type;
    if (!format.empty()) json["format"] = format;
    return json;
  }

  template <class Value>
  Json Write(Value& value, const schema::Object&, const std::string& path, const Notes& notes) {
    objects_.insert(path);
    Json json = Begin(path, "object", "", notes);
    Object object{*this, path};
    schema::Fields(object, value);
    for (const Relation& relation : kRelations) {
      if (relation.path != path) continue;
      const std::string field = relation.field.empty() ? "" : absl::StrCat(".", std::string(relation.field));
      const auto plain = [](std::string_view name) { return std::string(name); };
      object.validations.push_back(Validation(WithNames(relation.rule, CelText), WithNames(relation.message, plain),
                                              field, "", relation.reason));
    }
    json["properties"] = std::move(object.properties);
    // As metav1.Condition has it.
    if (path == "status.conditions[]") object.required = {"type", "status", "lastTransitionTime", "reason", "message"};
    if (!object.required.empty()) json["required"] = std::move(object.required);
    if (style_.preserve_unknown) json["x-kubernetes-preserve-unknown-fields"] = true;
    if (!object.validations.empty()) json["x-kubernetes-validations"] = std::move(object.validations);
    return json;
  }

  template <class Value>
  Json Write(Value&, const schema::Integer& rule, const std::string& path, const Notes& notes) {
    constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
    const bool limited = rule.supported_max < rule.max;
    const std::string extra = limited ? absl::StrCat(" More than ", rule.supported_max, " is not supported yet.") : "";
    Json json = Begin(path, "integer", sizeof(Value) > sizeof(std::int32_t) ? "int64" : "int32", notes, extra);
    json["minimum"] = rule.min;
    if (rule.max != kNoLimit) json["maximum"] = rule.max;
    if (limited) {
      json["x-kubernetes-validations"] = {
          Validation(absl::StrCat("self <= ", rule.supported_max),
                     absl::StrCat("more than ", rule.supported_max, " is not supported yet"))};
    }
    return json;
  }

  Json Write(double&, const schema::Number&, const std::string& path, const Notes& notes) {
    return Begin(path, "number", "double", notes);
  }

  Json Write(double&, const schema::PositiveFloat&, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "number", "double", notes);
    json["minimum"] = 0;
    json["exclusiveMinimum"] = true;
    // The API server takes the bounds of a schema for 64-bit integers where the value is one: 1 would be more than this
    // maximum.
    const std::string smallest = Json(schema::PositiveFloat::kMin).dump();
    const std::string largest = Json(schema::PositiveFloat::kMax).dump();
    json["x-kubernetes-validations"] = {
        Validation(absl::StrCat("self >= ", smallest, " && self <= ", largest),
                   absl::StrCat("must be from ", smallest, " to ", largest, ", which a float32 can be"))};
    return json;
  }

  Json Write(double&, const schema::Share&, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "number", "double", notes);
    json["minimum"] = 0;
    json["exclusiveMinimum"] = true;
    json["maximum"] = 1;
    return json;
  }

  Json Write(double&, const schema::Fraction& rule, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "number", "double", notes);
    json["x-kubernetes-validations"] = {
        Validation(absl::StrCat("self >= ", Json(rule.least).dump(), " && self < ", Json(rule.below).dump()),
                   absl::StrCat("must be at least ", rule.least, " and below ", rule.below))};
    return json;
  }

  Json Write(double&, const schema::Time&, const std::string& path, const Notes& notes) {
    return Begin(path, "string", "date-time", notes);
  }

  Json Write(bool&, const schema::Flag&, const std::string& path, const Notes& notes) {
    return Begin(path, "boolean", "", notes);
  }

  Json Write(std::string&, const schema::Text& rule, const std::string& path, const Notes& notes) {
    const bool limited = !rule.supported.empty();
    const std::string extra =
        limited ? absl::StrCat(" Anything but ", std::string(rule.supported), " is not supported yet.") : "";
    Json json = Begin(path, "string", "", notes, extra);
    const TextPattern& pattern = PatternOf(rule.check, path);
    Json validations = Json::array();
    if (pattern.max_length > 0) json["maxLength"] = pattern.max_length;
    if (!rule.check("").empty()) json["minLength"] = 1;
    if (!pattern.pattern.empty()) {
      validations.push_back(
          Validation(absl::StrCat("self.matches(", CelText(pattern.pattern), ")"), rule.check(pattern.refused)));
    }
    if (!pattern.condition.empty()) {
      const std::string too_long(pattern.max_length + 1, 'a');
      validations.push_back(Validation(std::string(pattern.condition), rule.check(too_long)));
    }
    if (limited) {
      validations.push_back(Validation(absl::StrCat("self == ", CelText(rule.supported)), "is not supported yet", "",
                                       "self + ' is not supported yet'"));
    }
    if (!validations.empty()) json["x-kubernetes-validations"] = std::move(validations);
    return json;
  }

  template <class Value, class Choice>
  Json Write(Value&, const schema::Choice<Choice>& rule, const std::string& path, const Notes& notes) {
    Json names = Json::array();
    std::string refused;
    std::string refused_list;
    for (const schema::Name<Choice>& entry : rule.names) {
      names.push_back(std::string(entry.name));
      if (entry.supported) continue;
      refused += (refused.empty() ? "" : ", ") + std::string(entry.name);
      refused_list += (refused_list.empty() ? "" : ", ") + CelText(entry.name);
    }
    Json json = Begin(path, "string", "", notes, refused.empty() ? "" : " Not supported yet: " + refused + ".");
    json["enum"] = std::move(names);
    if (!refused.empty()) {
      json["x-kubernetes-validations"] = {Validation(absl::StrCat("!(self in [", refused_list, "])"),
                                                     absl::StrCat("not supported yet: ", refused), "",
                                                     "self + ' is not supported yet'")};
    }
    return json;
  }

  template <class Value, class Item>
  Json Write(std::vector<Value>&, const schema::ListOf<Item>& rule, const std::string& path, const Notes& notes) {
    lists_.insert(path);
    Json json = Begin(path, "array", "", notes);
    if (rule.min_size > 0) json["minItems"] = rule.min_size;
    if (rule.max_size != schema::kUnlimited) json["maxItems"] = rule.max_size;
    const bool in_spec = path.starts_with("spec.") && !style_.preserve_unknown;
    std::string_view type = in_spec && !rule.ordered ? "set" : "atomic";
    Json keys = Json::array();
    for (const ListKeys& list : kListKeys) {
      if (list.path != path) continue;
      type = "map";
      for (const std::string_view key : list.keys) {
        if (!key.empty()) keys.push_back(std::string(key));
      }
    }
    json["x-kubernetes-list-type"] = type;
    if (!keys.empty()) json["x-kubernetes-list-map-keys"] = std::move(keys);
    Value item{};
    Json items = Write(item, rule.item, path + "[]", Notes());
    json["items"] = std::move(items);
    return json;
  }

  template <class Value, class Item>
  Json Write(std::map<std::string, Value>&, const schema::MapOf<Item>& rule, const std::string& path,
             const Notes& notes) {
    Json json = Begin(path, "object", "", notes);
    Value item{};
    json["additionalProperties"] = Write(item, rule.item, path + "[]", Notes());
    return json;
  }

  template <class Value>
  Json Write(Value& value, const schema::ClosedObject&, const std::string& path, const Notes& notes) {
    const Style style = std::exchange(style_, {});
    Json json = Write(value, schema::Object{}, path, notes);
    style_ = style;
    return json;
  }

  Json Write(std::string&, const schema::Template&, const std::string& path, const Notes& notes) {
    schema::PodTemplate looked_at;
    const Style style = std::exchange(style_, {.preserve_unknown = true});
    Json json = Write(looked_at, schema::Object{}, path, notes);
    style_ = style;
    return json;
  }

  Json Write(std::string&, const schema::FreeMap&, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "object", "", notes);
    json["x-kubernetes-preserve-unknown-fields"] = true;
    return json;
  }

  Json Write(std::string&, const schema::FreeList& rule, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "array", "", notes);
    json["minItems"] = 1;
    json["maxItems"] = rule.max_size;
    json["x-kubernetes-list-type"] = "atomic";
    json["items"] = Begin(path + "[]", "object", "", Notes());
    json["items"]["x-kubernetes-preserve-unknown-fields"] = true;
    return json;
  }

  Json Write(schema::OpaqueValue&, const schema::Opaque&, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "", "", notes);
    json["x-kubernetes-preserve-unknown-fields"] = true;
    return json;
  }

  Json Write(ResumeFrom&, const schema::ResumePoint&, const std::string& path, const Notes& notes) {
    Json json = Begin(path, "", "", notes);
    json["x-kubernetes-preserve-unknown-fields"] = true;
    return json;
  }

  // Whether something in it may have fields that the schema does not know. For such an object the API server compares
  // the fields of its left side alone, and passes over those that only it has and the schema does not know.
  static bool HasOpaque(const Json& schema) {
    if (schema.contains("x-kubernetes-preserve-unknown-fields")) return true;
    if (schema.contains("items") && HasOpaque(schema["items"])) return true;
    const Json properties = schema.value("properties", Json::object());
    return std::any_of(properties.begin(), properties.end(), HasOpaque);
  }

  static std::string TextOf(const Json& preset) {
    if (preset.is_null()) return "";
    return preset.is_string() ? preset.get<std::string>() : preset.dump();
  }

  // Of an object: what its fields have. Just {} would do if its rules were not tried on the default as it stands.
  static Json DefaultsOf(const Json& object) {
    Json preset = Json::object();
    for (const auto& [name, property] : object["properties"].items()) {
      if (property.contains("default")) preset[name] = property["default"];
    }
    return preset;
  }

  // The default of a field, from the value that the struct begins with; null: it has none.
  template <class Value>
  static Json Default(const Value& value, const schema::Integer&) {
    return value;
  }
  static Json Default(double value, const schema::Number&) { return value; }
  static Json Default(double value, const schema::PositiveFloat&) { return value; }
  static Json Default(bool value, const schema::Flag&) { return value; }
  static Json Default(const std::string& value, const schema::Text&) { return value; }
  template <class Value, class Choice>
  static Json Default(const Value& value, const schema::Choice<Choice>& rule) {
    const std::string_view name = rule.NameOf(value);
    return name.empty() ? Json() : Json(std::string(name));
  }
  static Json Default(const ResumeFrom&, const schema::ResumePoint&) { return "Latest"; }
  template <class Value, class Rule>
  static Json Default(const Value&, const Rule&) {
    return nullptr;
  }

  Style style_;
  std::map<std::string, std::string_view> descriptions_;
  std::set<std::string> described_;
  std::set<std::string> objects_;
  std::set<std::string> lists_;
  std::vector<std::string> problems_;
};

Json Column(std::string_view name, std::string_view type, std::string_view path, std::string_view description,
            int priority = 0) {
  Json json;
  json["name"] = name;
  json["type"] = type;
  json["description"] = description;
  json["jsonPath"] = path;
  if (priority > 0) json["priority"] = priority;
  return json;
}

Json Definition(Json root) {
  Json version;
  version["name"] = "v1alpha1";
  version["served"] = true;
  version["storage"] = true;
  version["subresources"]["status"] = Json::object();
  version["subresources"]["scale"]["specReplicasPath"] = ".spec.worker.replicas";
  version["subresources"]["scale"]["statusReplicasPath"] = ".status.worker.replicas";
  version["subresources"]["scale"]["labelSelectorPath"] = ".status.worker.selector";
  version["additionalPrinterColumns"] = {
      Column("Phase", "string", ".status.phase", "The conditions in one word."),
      Column("Workers", "string", ".status.worker.summary", "Ready and desired workers."),
      Column("PS", "string", ".status.parameterServer.summary", "Ready and desired parameter servers."),
      Column("Step", "integer", ".status.progress.step", "Updates applied."),
      Column("Restarts", "integer", ".status.restarts.total", "Restarts of any pod."),
      Column("Age", "date", ".metadata.creationTimestamp", "Since the job was made."),
      Column("Done", "integer", ".status.progress.percent", "Percent of the updates.", 1),
      Column("Accuracy", "string", ".status.progress.testAccuracy", "Of the newest evaluation.", 1),
      Column("Reason", "string", ".status.reason", "Why the phase is what it is.", 1)};
  version["schema"]["openAPIV3Schema"] = std::move(root);

  Json json;
  json["apiVersion"] = "apiextensions.k8s.io/v1";
  json["kind"] = "CustomResourceDefinition";
  json["metadata"]["name"] = absl::StrCat(kPlural, ".", kGroup);
  Json& spec = json["spec"];
  spec["group"] = kGroup;
  spec["scope"] = "Namespaced";
  spec["names"]["kind"] = kKind;
  spec["names"]["listKind"] = absl::StrCat(kKind, "List");
  spec["names"]["plural"] = kPlural;
  spec["names"]["singular"] = "trainingjob";
  spec["names"]["shortNames"] = {"tj"};
  spec["names"]["categories"] = {"all", "training"};
  spec["versions"] = Json::array();
  spec["versions"].push_back(std::move(version));
  return json;
}

// Block YAML. A string stands plain only where every reader of YAML takes it for the same string.
class YamlWriter {
 public:
  std::string Write(const Json& json) {
    Map(json, 0);
    return std::move(text_);
  }

 private:
  static constexpr std::size_t kWidth = 120;

  static bool IsPlain(const std::string& text) {
    static const std::set<std::string_view> kWords = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return !text.empty() && letter(text.front()) && !kWords.contains(lower) &&
           std::all_of(text.begin(), text.end(),
                       [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '/'; });
  }

  static std::string Scalar(const Json& json) {
    if (!json.is_string()) return json.dump();
    const auto& text = json.get_ref<const std::string&>();
    return IsPlain(text) ? text : json.dump();
  }

  // Lines of one paragraph, to which a reader puts the blanks back.
  void Folded(const std::string& text, std::size_t indent) {
    text_ += " >-";
    std::size_t column = kWidth;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      if (column + 1 + end - begin > kWidth) {
        text_ += "\n" + std::string(indent, ' ');
        column = indent;
      } else {
        text_ += ' ';
        ++column;
      }
      text_ += text.substr(begin, end - begin);
      column += end - begin;
      begin = end + 1;
    }
    text_ += '\n';
  }

  // What stands behind "key:" or "-"; `indent` is that of what is inside.
  void Value(const Json& json, std::size_t indent, bool prose) {
    if (json.is_object() && !json.empty()) {
      text_ += '\n';
      Map(json, indent);
    } else if (json.is_array() && !json.empty()) {
      text_ += '\n';
      List(json, indent - 2);
    } else if (prose && json.is_string() && json.dump().size() + indent > 80 &&
               json.get_ref<const std::string&>().find_first_of("\n\t") == std::string::npos) {
      Folded(json.get<std::string>(), indent);
    } else {
      text_ += ' ' + Scalar(json) + '\n';
    }
  }

  void Map(const Json& json, std::size_t indent, bool first_is_indented = false) {
    for (const auto& [key, value] : json.items()) {
      if (!std::exchange(first_is_indented, false)) text_ += std::string(indent, ' ');
      text_ += Scalar(Json(key)) + ':';
      Value(value, indent + 2, key == "description");
    }
  }

  void List(const Json& json, std::size_t indent) {
    for (const Json& item : json) {
      text_ += std::string(indent, ' ') + '-';
      if (item.is_object() && !item.empty()) {
        text_ += ' ';
        Map(item, indent + 2, true);
      } else {
        Value(item, indent + 2, false);
      }
    }
  }

  std::string text_;
};

}  // namespace

std::span<const TextPattern> TextPatterns() { return kTextPatterns; }

std::string CustomResourceDefinitionYaml() {
  return "# Written by downpour-crd from operator/api; do not edit.\n" +
         YamlWriter().Write(Definition(SchemaWriter().Root()));
}

std::string CustomResourceDefinitionJson() { return Definition(SchemaWriter().Root()).dump(2); }

std::vector<std::string> CustomResourceDefinitionProblems() {
  SchemaWriter writer;
  writer.Root();
  return writer.TakeProblems();
}

}  // namespace downpour::api
