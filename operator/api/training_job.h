#ifndef DOWNPOUR_OPERATOR_API_TRAINING_JOB_H_
#define DOWNPOUR_OPERATOR_API_TRAINING_JOB_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// TrainingJob, training.downpour.dev/v1alpha1: plain values, no behaviour. Reading, defaults and validation are in
// manifest.h. Durations are whole seconds, as the field names say. An absent optional section is std::nullopt.
namespace downpour::api {

inline constexpr char kApiVersion[] = "training.downpour.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";

enum class Strategy { kParameterServer, kAllReduce };
enum class Role { kCoordinator, kParameterServer, kWorker };
enum class SuccessPolicy { kAllWorkers, kWorker0, kCoordinator };
enum class RestartAction { kIgnore, kReplace, kRestoreRole, kRestartJob, kFailJob };
enum class UpdateMode { kAsync, kBoundedStaleness, kSynchronous, kSandblaster };
enum class OptimizerType { kSgd, kMomentum, kNesterov, kAdagrad, kRmsProp, kAdam, kAdamW, kLamb, kDelayCompensatedSgd };
enum class Compensation { kConstant, kAdaptive };
enum class StalenessRule { kDivide, kGap };
enum class ScheduleType { kConstant, kStep, kExponential, kCosine, kOneCycle };
enum class LocalOptimizerType { kSgd, kMomentum, kAdam, kAdamW };
enum class Codec { kFp32, kBf16, kInt8, kTopK, kOneBit };
enum class Device { kAuto, kCpu, kCuda };
enum class Precision { kFp32, kTf32, kBf16 };
enum class MemoryFormat { kAuto, kContiguous, kChannelsLast };
enum class OnDevice { kAuto, kNever, kAlways };
enum class DisruptionPolicy { kProtect, kAllow };
enum class CleanupPolicy { kAll, kRunning, kKeepFailed, kNone };
// What a step of all-reduce is where there are more or fewer workers than worker.replicas.
enum class BatchPolicy { kKeepGlobalBatch, kScaleLearningRate };
enum class ResumeMode { kLatest, kNever, kTrainingJob, kUri };
enum class GangPolicy { kNone, kMinReplicas, kAll };
enum class SchedulingProvider { kAuto, kNone, kKubernetes, kVolcano, kSchedulerPlugins };

struct Metadata {
  std::string name;           // empty: still to be made from generate_name
  std::string generate_name;  // its beginning
  std::string namespace_name = "default";
  std::string uid;  // set by the cluster, or by the run
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::int64_t generation = 1;  // of the spec, raised by each change
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

// A pod template is JSON text as ToJson writes it, keys sorted; "": none. It is used on a cluster only.
struct CoordinatorSpec {
  std::string pod_template = {};
  friend bool operator==(const CoordinatorSpec&, const CoordinatorSpec&) = default;
};

inline constexpr int kUsualReplicationLag = 16;

// kSync: nothing is acknowledged before the standby holds it. kAsync: the parameter server may be some updates ahead.
enum class ReplicationType { kSync, kAsync };

struct ReplicationSpec {
  ReplicationType type = ReplicationType::kSync;
  std::optional<int> max_lag;  // of kAsync, in updates; absent: kUsualReplicationLag
  // So many updates a ps may be ahead of its standby.
  int lag() const { return type == ReplicationType::kSync ? 0 : max_lag.value_or(kUsualReplicationLag); }
  friend bool operator==(const ReplicationSpec&, const ReplicationSpec&) = default;
};

inline constexpr int kParameterServers = 1;  // unless the manifest says how many
struct ParameterServerSpec {
  int replicas = kParameterServers;
  int replication_factor = 1;  // so many hold each slice
  std::optional<ReplicationSpec> replication = std::nullopt;
  DisruptionPolicy disruption = DisruptionPolicy::kProtect;
  int max_protect_seconds = 3600;  // from when a drain was seen to wait
  std::string pod_template = {};
  friend bool operator==(const ParameterServerSpec&, const ParameterServerSpec&) = default;
};

struct WorkerSpec {
  int replicas = 1;
  std::optional<int> gpus = std::nullopt;  // on which each computes together; absent: see WorkerGpus
  std::string pod_template = {};
  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

struct ElasticSpec {
  int min_replicas = 1;
  int max_replicas = 1;
  int shrink_after_seconds = 60;
  int grow_cooldown_seconds = 120;
  std::optional<BatchPolicy> batch_policy = std::nullopt;  // of kAllReduce; absent: kKeepGlobalBatch
  // Of kAllReduce: workers that hold each part of the optimizer's state; absent: each has all of it.
  std::optional<int> state_copies = std::nullopt;
  friend bool operator==(const ElasticSpec&, const ElasticSpec&) = default;
};

struct Backoff {
  int initial_seconds = 1;
  int max_seconds = 300;
  friend bool operator==(const Backoff&, const Backoff&) = default;
};

struct ExitCodeRule {
  bool in = true;  // operator In or NotIn
  std::vector<int> values;
  std::optional<std::string> container_name = {};  // whose code; absent: whichever it is
  friend bool operator==(const ExitCodeRule&, const ExitCodeRule&) = default;
};

struct PodConditionRule {
  std::string type;
  std::string status;
  friend bool operator==(const PodConditionRule&, const PodConditionRule&) = default;
};

struct FailureRule {
  std::string name;
  std::vector<Role> roles;  // empty: every role
  std::vector<PodConditionRule> on_pod_conditions;
  std::vector<std::string> on_container_reasons;
  std::optional<ExitCodeRule> on_exit_codes;
  RestartAction action = RestartAction::kReplace;
  bool counts_towards_limit = true;
  friend bool operator==(const FailureRule&, const FailureRule&) = default;
};

struct FailurePolicy {
  int max_restarts = 100;             // counted restarts of the whole job within the window
  int max_restarts_per_replica = 10;  // likewise, of one role and index
  int window_seconds = 3600;          // 0: for life
  Backoff backoff;
  int termination_timeout_seconds = 300;
  int pending_timeout_seconds = 900;
  std::vector<FailureRule> rules;  // first match wins
  friend bool operator==(const FailurePolicy&, const FailurePolicy&) = default;
};

// An empty type: what the network or the target suggests.
struct LossSpec {
  std::string type;
  std::optional<double> label_smoothing;
  std::optional<double> delta;
  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};

// A shared library of the user's own.
struct PluginSpec {
  std::string path;
  std::string name;        // of the network in it; empty: only losses and metrics of it are used
  std::string parameters;  // JSON map for that network
  friend bool operator==(const PluginSpec&, const PluginSpec&) = default;
};

struct TorchScriptSpec {
  std::string path;
  friend bool operator==(const TorchScriptSpec&, const TorchScriptSpec&) = default;
};

// What the network begins with instead of values drawn by the seed.
struct InitialWeightsSpec {
  std::string path = {};  // of a safetensors file
  bool strict = true;     // it has every parameter and buffer, and nothing else
  friend bool operator==(const InitialWeightsSpec&, const InitialWeightsSpec&) = default;
};

// The network is what exactly one of name, layers, plugin->name and torch_script says.
struct ModelSpec {
  std::string name;        // of the zoo
  std::string parameters;  // JSON map: sizes of the network with that name; empty: as documented
  std::string layers;      // JSON list of maps
  std::optional<PluginSpec> plugin = std::nullopt;
  std::optional<TorchScriptSpec> torch_script = std::nullopt;
  std::optional<LossSpec> loss;
  std::vector<std::string> metrics;  // empty: the loss's usual one
  std::optional<InitialWeightsSpec> initial_weights = std::nullopt;
  std::vector<std::string> frozen;  // names of parameters that are not trained; * stands for any text
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Generated data. What is absent is as usual for the kind.
struct SyntheticSpec {
  std::string kind;  // Images, Text, Speech, Radar
  std::optional<std::int64_t> samples;
  std::optional<std::int64_t> test_samples;
  std::optional<std::int64_t> seed;
  std::vector<std::int64_t> shape;
  std::optional<std::int64_t> classes;
  std::optional<std::int64_t> vocabulary;
  std::optional<std::int64_t> min_length;
  std::optional<std::int64_t> max_length;
  friend bool operator==(const SyntheticSpec&, const SyntheticSpec&) = default;
};

struct SplitSpec {
  std::optional<double> validation;  // the share of samples that are held out to be tested on
  std::int64_t seed = 1;
  friend bool operator==(const SplitSpec&, const SplitSpec&) = default;
};

struct DatasetFieldSpec {
  std::string column;                // or columns, single numbers that make one field
  std::vector<std::string> columns;  // which needs a name
  std::string name;                  // empty: that of the column
  bool target = false;
  std::optional<int> classes;  // of one integer, which is below this
  friend bool operator==(const DatasetFieldSpec&, const DatasetFieldSpec&) = default;
};

// Each type has some of these; which, see relations.h.
struct TransformSpec {
  std::string type;
  std::string field;  // empty: each that it is for
  std::optional<int> height;
  std::optional<int> width;
  std::optional<int> padding;
  std::optional<double> probability;
  std::optional<double> brightness;
  std::optional<double> contrast;
  std::optional<double> saturation;
  std::vector<double> mean;
  std::vector<double> std;
  std::optional<int> vocabulary;  // words
  std::optional<int> max_length;  // likewise
  std::optional<int> classes;
  std::string dtype;
  friend bool operator==(const TransformSpec&, const TransformSpec&) = default;
};

struct ColumnSpec {
  std::string name;
  std::string type;  // empty: it is found out
  std::vector<int> shape;
  std::vector<std::string> class_names;
  friend bool operator==(const ColumnSpec&, const ColumnSpec&) = default;
};

struct CsvSpec {
  bool header = true;
  std::string delimiter = ",";
  friend bool operator==(const CsvSpec&, const CsvSpec&) = default;
};

struct BadSampleSpec {
  bool skip = false;
  std::int64_t limit = 100;  // that one worker skips
  friend bool operator==(const BadSampleSpec&, const BadSampleSpec&) = default;
};

struct DatasetCacheSpec {
  std::string directory;
  std::string size = "8Gi";  // of what is kept of remote files
  friend bool operator==(const DatasetCacheSpec&, const DatasetCacheSpec&) = default;
};

inline constexpr int kDefaultShuffleBlock = 1024;

struct DatasetSpec {
  std::string format = {};
  std::string path = {};       // but for Synthetic: a file, a directory, or a URI
  std::string test_path = {};  // where the format does not say itself which samples are for tests
  std::optional<SplitSpec> split = std::nullopt;
  std::vector<DatasetFieldSpec> fields = {};
  std::vector<TransformSpec> transforms = {};
  std::vector<ColumnSpec> columns = {};
  std::vector<std::string> class_names = {};
  std::optional<CsvSpec> csv = std::nullopt;
  std::string text_layout = {};          // of Text
  std::optional<int> channels = {};      // of images
  std::optional<int> threads = {};       // of each worker, that read and transform
  std::optional<int> prefetch = {};      // minibatches that it reads ahead
  bool pin_memory = true;                // they go to a GPU through page-locked memory
  OnDevice on_device = OnDevice::kAuto;  // whether a GPU holds the whole training set
  std::optional<BadSampleSpec> on_bad_sample = std::nullopt;
  std::optional<DatasetCacheSpec> cache = std::nullopt;
  bool shuffle_blocks = false;            // the order of an epoch is made of blocks of neighbouring samples
  std::optional<int> shuffle_block = {};  // samples of a block; absent: kDefaultShuffleBlock
  std::optional<SyntheticSpec> synthetic = std::nullopt;
  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
};

// What evaluations mean for the training that goes on. A metric is "Loss", or one of the model's.
struct EarlyStoppingSpec {
  std::string metric = "Loss";
  double min_delta = 0;      // a smaller change is no improvement
  int patience = 1;          // it ends after so many epochs without improvement
  int start_from_epoch = 0;  // so many epochs are not looked at
  friend bool operator==(const EarlyStoppingSpec&, const EarlyStoppingSpec&) = default;
};

struct ReduceOnPlateauSpec {
  std::string metric = "Loss";
  double factor = 0.1;  // of the learning rate, each time
  int patience = 10;    // the rate is reduced after so many epochs without improvement
  int cooldown = 0;     // epochs after a reduction that are not counted
  double min_learning_rate = 0;
  double min_delta = 1e-4;
  friend bool operator==(const ReduceOnPlateauSpec&, const ReduceOnPlateauSpec&) = default;
};

struct KeepBestSpec {
  std::string metric = "Loss";
  friend bool operator==(const KeepBestSpec&, const KeepBestSpec&) = default;
};

struct TrainingSpec {
  std::optional<int> epochs = {};          // at most one of both; neither: one epoch
  std::optional<std::int64_t> steps = {};  // updates
  // Passes over the training set; 0: as many as the steps take.
  int whole_epochs() const { return steps.has_value() ? 0 : epochs.value_or(1); }
  int batch_size = 128;
  std::int64_t seed = 1;
  Device device = Device::kAuto;
  Precision precision = Precision::kFp32;
  MemoryFormat memory_format = MemoryFormat::kAuto;
  int threads = 0;            // of one worker; 0: one
  int updates_per_shard = 0;  // of one lease; 0: chosen by the coordinator
  bool evaluate = true;       // on the test set, after each epoch
  std::optional<EarlyStoppingSpec> early_stopping = {};
  std::optional<ReduceOnPlateauSpec> reduce_on_plateau = {};
  std::optional<KeepBestSpec> keep_best = {};  // of the models after each epoch, as a file besides
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// What is absent has the default of the type; see ToTrainingConfig.
struct OptimizerSpec {
  OptimizerType type = OptimizerType::kSgd;
  double learning_rate = 0.01;
  std::optional<bool> staleness_aware = {};  // absent: true, of kSynchronous false
  StalenessRule staleness_rule = StalenessRule::kDivide;
  std::optional<double> momentum = {};
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> epsilon = {};
  std::optional<double> decay = {};
  std::optional<double> initial_accumulator = {};
  std::optional<double> weight_decay = {};
  std::vector<std::string> no_decay = {};  // names of parameters; * stands for any text
  std::optional<Compensation> compensation = {};
  std::optional<double> lambda = {};
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

inline constexpr int kUsualStaleness = 4;

// The optimizer of local steps. What is absent is as docs/manifest.md says.
struct LocalOptimizerSpec {
  LocalOptimizerType type = LocalOptimizerType::kSgd;
  double learning_rate = 0.01;
  std::optional<double> momentum;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> epsilon;
  std::optional<double> weight_decay;
  friend bool operator==(const LocalOptimizerSpec&, const LocalOptimizerSpec&) = default;
};

// Exactly one of both.
struct ScheduleInterval {
  std::optional<std::int64_t> updates = {};
  std::optional<int> epochs = {};
  friend bool operator==(const ScheduleInterval&, const ScheduleInterval&) = default;
};

// Exactly one of updates and fraction.
struct WarmupSpec {
  std::optional<std::int64_t> updates = {};
  std::optional<double> fraction = {};  // of the job's updates
  double from = 0;                      // of the learning rate
  friend bool operator==(const WarmupSpec&, const WarmupSpec&) = default;
};

// How the learning rate changes: that of localOptimizer where there are local steps, otherwise that of optimizer. What
// is absent is as docs/manifest.md says.
struct ScheduleSpec {
  ScheduleType type = ScheduleType::kConstant;
  std::optional<double> gamma = {};            // of kStep and kExponential
  std::optional<ScheduleInterval> every = {};  // likewise
  std::optional<double> eta_min = {};          // of kCosine
  std::optional<double> pct_start = {};        // of kOneCycle
  std::optional<double> div_factor = {};
  std::optional<double> final_div_factor = {};
  std::optional<WarmupSpec> warmup = {};
  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

// Of kSandblaster.
struct LbfgsSpec {
  int history = 10;                  // pairs of steps and of changes of the gradient that are kept
  double gradient_tolerance = 1e-5;  // it has converged once no element of the gradient is greater
  int max_iterations = 0;            // 0: as many as the epochs allow
  friend bool operator==(const LbfgsSpec&, const LbfgsSpec&) = default;
};

struct UpdateSpec {
  UpdateMode mode = UpdateMode::kAsync;  // of kAllReduce always kSynchronous
  std::optional<int> staleness;          // of kBoundedStaleness; absent: kUsualStaleness
  std::optional<int> warm_start;         // so many updates one worker makes alone; not of kSynchronous
  std::optional<int> updates_per_step;   // of kSynchronous; absent: one a worker
  OptimizerSpec optimizer;
  std::optional<ScheduleSpec> schedule;  // of the learning rate; absent: it is constant
  Codec codec = Codec::kFp32;            // of gradients
  std::optional<double> top_k;           // of kTopK: the fraction that is kept; absent: 0.01
  Codec pull_codec = Codec::kFp32;       // of values; kFp32 or kBf16
  int accumulate = 1;                    // minibatches an update, with one mean gradient
  int local_steps = 1;  // minibatches an update, with a step of local_optimizer each; 1: gradients are pushed
  int fetch_every = 1;  // updates from one that begins with new values to the next, where local_steps is more than 1
  std::optional<LocalOptimizerSpec> local_optimizer;  // where local_steps is more than 1
  std::optional<double> clip_norm;
  std::optional<LbfgsSpec> lbfgs;  // of kSandblaster; absent: as it is by default
  // Of an update; only one of both is more than 1.
  std::uint64_t minibatches() const { return static_cast<std::uint64_t>(std::max(accumulate, local_steps)); }
  friend bool operator==(const UpdateSpec&, const UpdateSpec&) = default;
};

struct OutputSpec {
  std::string directory;  // the final model goes here; empty: the run's own folder
  // On a cluster, where the directory is in no volume that outlives its pod: how long the pod of the worker that wrote
  // the model stays after the end.
  int keep_seconds = 3600;
  friend bool operator==(const OutputSpec&, const OutputSpec&) = default;
};

struct OnDisruption {
  int timeout_seconds = 60;
  friend bool operator==(const OnDisruption&, const OnDisruption&) = default;
};

struct ResumeFrom {
  ResumeMode mode = ResumeMode::kLatest;
  std::string training_job;  // of kTrainingJob: in the same namespace
  std::string uri;           // of kUri
  friend bool operator==(const ResumeFrom&, const ResumeFrom&) = default;
};

struct CheckpointSpec {
  std::string uri;  // a directory, or s3://BUCKET/PREFIX; each job has a folder of its own in it
  int interval_seconds = 600;
  int keep = 3;              // of this job, the newest
  std::string keep_best;     // one of the model's metrics; empty: none is kept for being the best
  std::string extra_memory;  // of a ps beside its parameters: "512Mi"; empty: as much as it takes
  std::optional<OnDisruption> on_disruption;
  ResumeFrom resume_from;
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// Event files of TensorBoard.
struct TensorBoardSpec {
  std::string directory;    // each job has a folder of its own in it
  bool histograms = false;  // of what differs from worker to worker
  friend bool operator==(const TensorBoardSpec&, const TensorBoardSpec&) = default;
};

struct MlflowSpec {
  std::string experiment = "Default";  // by name
  std::string run_name;                // empty: that of the job
  std::string uri;  // of the tracking server; empty: MLFLOW_TRACKING_URI in the environment of the coordinator
  friend bool operator==(const MlflowSpec&, const MlflowSpec&) = default;
};

// Where the figures of the run go besides.
struct TrackingSpec {
  std::optional<TensorBoardSpec> tensorboard;
  std::optional<MlflowSpec> mlflow;
  friend bool operator==(const TrackingSpec&, const TrackingSpec&) = default;
};

struct AvoidNodes {
  int after_failures = 2;
  int for_seconds = 3600;
  friend bool operator==(const AvoidNodes&, const AvoidNodes&) = default;
};

struct SchedulingSpec {
  GangPolicy gang = GangPolicy::kNone;
  SchedulingProvider provider = SchedulingProvider::kAuto;
  std::string queue;
  std::string priority_class_name;
  std::optional<AvoidNodes> avoid_nodes;
  friend bool operator==(const SchedulingSpec&, const SchedulingSpec&) = default;
};

// Absent: as for the job.
struct RoleCleanup {
  std::optional<CleanupPolicy> on_success;
  std::optional<CleanupPolicy> on_failure;
  friend bool operator==(const RoleCleanup&, const RoleCleanup&) = default;
};

struct PodCleanup {
  CleanupPolicy on_success = CleanupPolicy::kAll;
  CleanupPolicy on_failure = CleanupPolicy::kKeepFailed;
  std::optional<RoleCleanup> coordinator;
  std::optional<RoleCleanup> parameter_server;
  std::optional<RoleCleanup> worker;
  friend bool operator==(const PodCleanup&, const PodCleanup&) = default;
};

struct TrainingJobSpec {
  Strategy strategy = Strategy::kParameterServer;
  bool suspend = false;
  std::string managed_by = "training.downpour.dev/operator";
  std::optional<CoordinatorSpec> coordinator;
  std::optional<ParameterServerSpec> parameter_server;
  WorkerSpec worker;
  std::optional<ElasticSpec> elastic;
  SuccessPolicy success_policy = SuccessPolicy::kCoordinator;
  FailurePolicy failure_policy;
  int progress_deadline_seconds = 1800;  // 0: off
  std::optional<int> active_deadline_seconds;
  std::optional<int> ttl_seconds_after_finished;
  PodCleanup pod_cleanup;
  std::optional<CheckpointSpec> checkpoint;
  std::optional<SchedulingSpec> scheduling;
  ModelSpec model;
  DatasetSpec dataset;
  TrainingSpec training;
  UpdateSpec update;
  OutputSpec output;
  std::optional<TrackingSpec> tracking;
  friend bool operator==(const TrainingJobSpec&, const TrainingJobSpec&) = default;
};

// One per type, as in metav1.Condition. Times are seconds since the epoch of the caller's clock.
struct Condition {
  std::string type;
  bool status = false;
  std::string reason;
  std::string message;
  double last_transition_time = 0;
  std::int64_t observed_generation = 0;
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct FailureRecord {
  double time = 0;
  Role role = Role::kWorker;
  int index = 0;
  int incarnation = 0;
  std::string uid;  // of the pod or process
  std::string cause;
  std::string container;  // "init container fetch"; empty: that of Downpour
  std::optional<int> exit_code;
  std::string action;
  bool counted = true;
  bool platform = false;  // the platform ended it, not what ran in it
  std::string message;
  std::string node;           // that the pod ran on
  std::string last_log_line;  // that the container wrote
  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

struct RoleStatus {
  int desired = 0;
  int replicas = 0;
  int pending = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  int terminating = 0;
  int restarts = 0;
  std::string summary;   // ready and desired: "7/8"
  std::string selector;  // of the pods, as kubectl -l takes it; the scale subresource hands it on
  friend bool operator==(const RoleStatus&, const RoleStatus&) = default;
};

struct MembershipStatus {
  std::uint64_t epoch = 0;  // raised by each change of the members
  friend bool operator==(const MembershipStatus&, const MembershipStatus&) = default;
};

// The parts of a recovery, in seconds; each absent until it is over, or where it is not known.
struct RecoveryPhases {
  std::optional<double> detect;    // from the end of a member until it was seen
  std::optional<double> schedule;  // until the last of the replacements ran
  std::optional<double> start;     // until all members were ready
  std::optional<double> restore;   // until the first new update
  friend bool operator==(const RecoveryPhases&, const RecoveryPhases&) = default;
};

// The newest recovery: from when the end of a member was seen until training went on.
struct RecoveryStatus {
  std::string last_cause;
  Role last_role = Role::kWorker;
  double last_start_time = 0;
  std::optional<std::int64_t> last_duration_seconds;  // absent: it is not over
  RecoveryPhases phases;
  std::uint64_t step = 0;                     // updates applied when it began; from what it fell back to, if it did
  std::string restored_from;                  // URI; empty: no checkpoint was needed, or there was none
  std::optional<std::uint64_t> lost_updates;  // absent: none, or it is not known yet
  std::optional<std::int64_t> lost_seconds;   // of training
  std::vector<std::string> skipped;           // newer checkpoints that were not used: "NAME: why"
  friend bool operator==(const RecoveryStatus&, const RecoveryStatus&) = default;
};

// The newest checkpoint of the job.
struct CheckpointStatus {
  std::string newest;         // URI; empty: there is none yet
  std::uint64_t updates = 0;  // that it holds
  std::optional<double> time;
  int failures = 0;   // attempts of the coordinator that runs
  std::string error;  // why the newest attempt failed; empty: it did not
  friend bool operator==(const CheckpointStatus&, const CheckpointStatus&) = default;
};

// A checkpoint that is wanted before something happens. Whoever asks the coordinator tells it.
struct CheckpointRequestStatus {
  std::string name;  // another name is another wish
  double since = 0;
  friend bool operator==(const CheckpointRequestStatus&, const CheckpointRequestStatus&) = default;
};

// How the parameter servers apply updates.
struct UpdateModeStatus {
  UpdateMode mode = UpdateMode::kAsync;
  std::optional<int> staleness;         // of kBoundedStaleness
  std::optional<int> updates_per_step;  // of kSynchronous
  friend bool operator==(const UpdateModeStatus&, const UpdateModeStatus&) = default;
};

// The workers of a job without parameter servers, as the coordinator said last.
struct RingStatus {
  int members = 0;           // workers that train together
  int wanted = 0;            // of them
  bool formed = false;       // all members have joined
  int formed_count = 0;      // rings that the coordinator which runs has formed
  int updates_per_step = 0;  // shared out among the members
  std::string message;       // why it is as it is, or what it waits for; empty: it is as wanted
  friend bool operator==(const RingStatus&, const RingStatus&) = default;
};

// Who holds the slices of the parameters, as the coordinator said last.
struct SlicesStatus {
  int total = 0;
  int in_sync = 0;                     // of these, with a standby that has all that was acknowledged
  int moving = 0;                      // that are being copied
  std::vector<int> parameter_servers;  // indices of those that hold some
  friend bool operator==(const SlicesStatus&, const SlicesStatus&) = default;
};

// A parameter server that is to hold nothing, as its node is drained. Whoever asks the coordinator tells it.
struct LeavingParameterServer {
  int index = 0;
  double since = 0;
  friend bool operator==(const LeavingParameterServer&, const LeavingParameterServer&) = default;
};

// The final model, once it is written.
struct OutputStatus {
  std::string path;
  int worker = 0;  // who wrote it: index
  int incarnation = 0;
  std::optional<double> kept_until;  // by the pod of that worker, which stays until then; absent: it does not stay
  friend bool operator==(const OutputStatus&, const OutputStatus&) = default;
};

// The model of the best evaluation so far.
struct BestModelStatus {
  int epoch = 0;  // after so many
  std::string reason;
  std::string path;  // empty: it is not written yet
  friend bool operator==(const BestModelStatus&, const BestModelStatus&) = default;
};

// What evaluations have decided so far; a text that is empty: nothing.
struct TrainingStatus {
  std::string stop_reason;              // why it ends before all epochs are done
  std::string rate_reason;              // why the learning rate is less than the schedule says
  std::optional<BestModelStatus> best;  // absent: none is kept, or none is evaluated yet
  friend bool operator==(const TrainingStatus&, const TrainingStatus&) = default;
};

// One of spec.model.metrics, over the whole test set.
struct TestMetricStatus {
  std::string name;
  std::string value;  // as text, like the fractions below
  friend bool operator==(const TestMetricStatus&, const TestMetricStatus&) = default;
};

// What training has done, as of last_update_time. Fractions are text, as is usual in a status; "": not known.
struct ProgressStatus {
  std::uint64_t step = 0;
  std::uint64_t total_steps = 0;  // 0: not known
  int percent = 0;
  std::string samples_per_second;
  std::optional<std::int64_t> eta_seconds;
  double last_update_time = 0;
  std::optional<double> next_update_time;  // absent: within seconds
  int epoch = 0;                           // of spec.training.epochs, from 1; 0: none has begun
  std::string loss;
  std::string test_accuracy;
  std::vector<TestMetricStatus> test_metrics;  // of the newest evaluation, in the order of the manifest
  friend bool operator==(const ProgressStatus&, const ProgressStatus&) = default;
};

// kWaiting: started, and not there yet. kParked: given up for now. kRetrying: given up, and being tried again.
enum class AbsenceState { kWaiting, kParked, kRetrying };

// A wanted worker of an elastic job that does not run. Nothing is kept of one whose first start is under way.
struct AbsentWorker {
  int index = 0;
  AbsenceState state = AbsenceState::kWaiting;
  double since = 0;  // in this state
  friend bool operator==(const AbsentWorker&, const AbsentWorker&) = default;
};

// A node on which pods of this job failed.
struct NodeStatus {
  std::string name;
  std::vector<double> fault_times;      // since it was avoided last, inside the window of the failure policy
  std::optional<double> avoided_until;  // absent: it is used
  friend bool operator==(const NodeStatus&, const NodeStatus&) = default;
};

// Everything that the planner needs to go on after a restart of its own; nothing else is kept between two plans.
struct TrainingJobStatus {
  std::int64_t observed_generation = 0;
  std::string phase;  // for people; derived
  std::string reason;
  std::vector<Condition> conditions;
  std::optional<double> start_time;
  std::optional<double> completion_time;
  RoleStatus coordinator, parameter_server, worker;
  int restarts_total = 0;
  int restarts_counted = 0;
  MembershipStatus membership;
  std::optional<RecoveryStatus> recovery;
  std::optional<ProgressStatus> progress;
  std::optional<UpdateModeStatus> update;                         // absent: the job has not trained yet
  std::optional<SlicesStatus> slices;                             // absent: nothing is known yet
  std::vector<LeavingParameterServer> leaving_parameter_servers;  // by index
  std::optional<RingStatus> ring;                                 // of kAllReduce; absent: nothing is known yet
  std::optional<TrainingStatus> training;                         // absent: evaluations have decided nothing
  std::optional<OutputStatus> output;
  std::optional<CheckpointStatus> checkpoint;
  std::optional<CheckpointRequestStatus> checkpoint_request;
  // The newest incarnation given out for each role and index; stored before the process is started, but for the first.
  std::map<std::string, int> incarnations;  // "worker-2" -> 3
  // Restarts inside the window, oldest first: the sliding-window limit and the back-off are computed from these.
  std::vector<FailureRecord> recent_failures;
  std::vector<FailureRecord> failures;       // newest 10, for people
  std::vector<std::string> counted_uids;     // failed pods already counted, so that counting is idempotent
  std::vector<AbsentWorker> absent_workers;  // by index
  std::vector<NodeStatus> nodes;             // only with avoidNodes; in the order of their first fault
  std::optional<double> last_progress_time;
  std::uint64_t last_progress_step = 0;
  friend bool operator==(const TrainingJobStatus&, const TrainingJobStatus&) = default;
};

struct TrainingJob {
  Metadata metadata;
  TrainingJobSpec spec;
  TrainingJobStatus status;
  friend bool operator==(const TrainingJob&, const TrainingJob&) = default;
};

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_TRAINING_JOB_H_
