#ifndef DOWNPOUR_OPERATOR_API_FIELD_NAMES_H_
#define DOWNPOUR_OPERATOR_API_FIELD_NAMES_H_

#include <cstdint>
#include <string_view>

#include "operator/api/field_rules.h"
#include "operator/api/training_job.h"

// The names that fields take values from, and the bounds that several share.
namespace downpour::api::schema {

inline constexpr Name<Strategy> kStrategies[] = {{"ParameterServer", Strategy::kParameterServer},
                                                 {"AllReduce", Strategy::kAllReduce}};
inline constexpr Name<Role> kRoles[] = {
    {"Coordinator", Role::kCoordinator}, {"ParameterServer", Role::kParameterServer}, {"Worker", Role::kWorker}};
inline constexpr Name<SuccessPolicy> kSuccessPolicies[] = {{"AllWorkers", SuccessPolicy::kAllWorkers, false},
                                                           {"Worker0", SuccessPolicy::kWorker0, false},
                                                           {"Coordinator", SuccessPolicy::kCoordinator}};
inline constexpr Name<AbsenceState> kAbsenceStates[] = {
    {"Waiting", AbsenceState::kWaiting}, {"Parked", AbsenceState::kParked}, {"Retrying", AbsenceState::kRetrying}};
inline constexpr Name<BatchPolicy> kBatchPolicies[] = {{"KeepGlobalBatch", BatchPolicy::kKeepGlobalBatch},
                                                       {"ScaleLearningRate", BatchPolicy::kScaleLearningRate}};
inline constexpr Name<RestartAction> kRestartActions[] = {{"Ignore", RestartAction::kIgnore},
                                                          {"Replace", RestartAction::kReplace},
                                                          {"RestoreRole", RestartAction::kRestoreRole, false},
                                                          {"RestartJob", RestartAction::kRestartJob},
                                                          {"FailJob", RestartAction::kFailJob}};
inline constexpr Name<DisruptionPolicy> kDisruptionPolicies[] = {{"Protect", DisruptionPolicy::kProtect},
                                                                 {"Allow", DisruptionPolicy::kAllow}};
inline constexpr Name<ReplicationType> kReplicationTypes[] = {{"Sync", ReplicationType::kSync},
                                                              {"Async", ReplicationType::kAsync}};
inline constexpr Name<bool> kExitCodeOperators[] = {{"In", true}, {"NotIn", false}};
inline constexpr Name<std::string_view> kConditionStatuses[] = {
    {"True", "True"}, {"False", "False"}, {"Unknown", "Unknown"}};
inline constexpr Name<bool> kTruth[] = {{"True", true}, {"False", false}};
inline constexpr Name<std::string_view> kModels[] = {{"Acoustic", "Acoustic"}, {"AlexNet", "AlexNet"},
                                                     {"BiLSTM", "BiLSTM"},     {"CifarCNN", "CifarCNN"},
                                                     {"LeNet", "LeNet"},       {"LocallyConnected", "LocallyConnected"},
                                                     {"MLP", "MLP"},           {"PhotoCNN", "PhotoCNN"},
                                                     {"ResNet18", "ResNet18"}, {"TextTransformer", "TextTransformer"},
                                                     {"UNet", "UNet"}};
inline constexpr Name<std::string_view> kLosses[] = {{"CrossEntropy", "CrossEntropy"},
                                                     {"BinaryCrossEntropy", "BinaryCrossEntropy"},
                                                     {"MeanSquaredError", "MeanSquaredError"},
                                                     {"Huber", "Huber"}};
inline constexpr Name<std::string_view> kMetrics[] = {{"Accuracy", "Accuracy"},
                                                      {"Top5Accuracy", "Top5Accuracy"},
                                                      {"BinaryAccuracy", "BinaryAccuracy"},
                                                      {"MeanAbsoluteError", "MeanAbsoluteError"}};
inline constexpr Name<std::string_view> kDatasetFormats[] = {{"IDX", "IDX"},
                                                             {"CIFAR10", "CIFAR10"},
                                                             {"CIFAR100", "CIFAR100"},
                                                             {"ImageFolder", "ImageFolder"},
                                                             {"CSV", "CSV"},
                                                             {"Text", "Text"},
                                                             {"NPY", "NPY"},
                                                             {"SafeTensors", "SafeTensors"},
                                                             {"Parquet", "Parquet"},
                                                             {"TFRecord", "TFRecord"},
                                                             {"WebDataset", "WebDataset"},
                                                             {"Synthetic", "Synthetic"}};
inline constexpr Name<bool> kFieldRoles[] = {{"Input", false}, {"Target", true}};
inline constexpr Name<std::string_view> kTransforms[] = {
    {"Resize", "Resize"},         {"CenterCrop", "CenterCrop"},   {"RandomCrop", "RandomCrop"},
    {"RandomFlip", "RandomFlip"}, {"ColorJitter", "ColorJitter"}, {"Normalize", "Normalize"},
    {"Tokenize", "Tokenize"},     {"OneHot", "OneHot"},           {"Cast", "Cast"}};
inline constexpr Name<std::string_view> kElementTypes[] = {
    {"u8", "u8"}, {"i32", "i32"}, {"i64", "i64"}, {"fp32", "fp32"}};
inline constexpr Name<std::string_view> kColumnTypes[] = {{"u8", "u8"},       {"i32", "i32"},
                                                          {"i64", "i64"},     {"fp32", "fp32"},
                                                          {"text", "text"},   {"categorical", "categorical"},
                                                          {"bytes", "bytes"}, {"image", "image"}};
inline constexpr Name<std::string_view> kTextLayouts[] = {
    {"Lines", "Lines"}, {"LabelledLines", "LabelledLines"}, {"Folders", "Folders"}};
inline constexpr Name<bool> kShuffles[] = {{"Full", false}, {"Blocks", true}};
inline constexpr Name<bool> kBadSampleActions[] = {{"Fail", false}, {"Skip", true}};
inline constexpr Name<std::string_view> kSyntheticKinds[] = {
    {"Images", "Images"}, {"Text", "Text"}, {"Speech", "Speech"}, {"Radar", "Radar"}};
inline constexpr Name<Device> kDevices[] = {{"Auto", Device::kAuto}, {"CPU", Device::kCpu}, {"CUDA", Device::kCuda}};
inline constexpr Name<Precision> kPrecisions[] = {
    {"fp32", Precision::kFp32}, {"tf32", Precision::kTf32}, {"bf16", Precision::kBf16}};
inline constexpr Name<MemoryFormat> kMemoryFormats[] = {{"Auto", MemoryFormat::kAuto},
                                                        {"Contiguous", MemoryFormat::kContiguous},
                                                        {"ChannelsLast", MemoryFormat::kChannelsLast}};
inline constexpr Name<OnDevice> kOnDevice[] = {
    {"Auto", OnDevice::kAuto}, {"Never", OnDevice::kNever}, {"Always", OnDevice::kAlways}};
inline constexpr Name<UpdateMode> kUpdateModes[] = {{"Async", UpdateMode::kAsync},
                                                    {"BoundedStaleness", UpdateMode::kBoundedStaleness},
                                                    {"Synchronous", UpdateMode::kSynchronous},
                                                    {"Sandblaster", UpdateMode::kSandblaster}};
inline constexpr Name<OptimizerType> kOptimizers[] = {{"SGD", OptimizerType::kSgd},
                                                      {"Momentum", OptimizerType::kMomentum},
                                                      {"Nesterov", OptimizerType::kNesterov},
                                                      {"Adagrad", OptimizerType::kAdagrad},
                                                      {"RMSProp", OptimizerType::kRmsProp},
                                                      {"Adam", OptimizerType::kAdam},
                                                      {"AdamW", OptimizerType::kAdamW},
                                                      {"LAMB", OptimizerType::kLamb},
                                                      {"DelayCompensatedSGD", OptimizerType::kDelayCompensatedSgd}};
inline constexpr Name<Compensation> kCompensations[] = {{"Constant", Compensation::kConstant},
                                                        {"Adaptive", Compensation::kAdaptive}};
inline constexpr Name<StalenessRule> kStalenessRules[] = {{"Divide", StalenessRule::kDivide},
                                                          {"Gap", StalenessRule::kGap}};
inline constexpr Name<ScheduleType> kSchedules[] = {{"Constant", ScheduleType::kConstant},
                                                    {"Step", ScheduleType::kStep},
                                                    {"Exponential", ScheduleType::kExponential},
                                                    {"Cosine", ScheduleType::kCosine},
                                                    {"OneCycle", ScheduleType::kOneCycle}};
inline constexpr Name<LocalOptimizerType> kLocalOptimizers[] = {{"SGD", LocalOptimizerType::kSgd},
                                                                {"Momentum", LocalOptimizerType::kMomentum},
                                                                {"Adam", LocalOptimizerType::kAdam},
                                                                {"AdamW", LocalOptimizerType::kAdamW}};
inline constexpr Name<Codec> kCodecs[] = {{"fp32", Codec::kFp32},
                                          {"bf16", Codec::kBf16},
                                          {"int8", Codec::kInt8},
                                          {"topK", Codec::kTopK},
                                          {"oneBit", Codec::kOneBit}};
inline constexpr Name<Codec> kPullCodecs[] = {{"fp32", Codec::kFp32}, {"bf16", Codec::kBf16}};
inline constexpr Name<CleanupPolicy> kCleanupPolicies[] = {{"All", CleanupPolicy::kAll},
                                                           {"Running", CleanupPolicy::kRunning},
                                                           {"KeepFailed", CleanupPolicy::kKeepFailed},
                                                           {"None", CleanupPolicy::kNone}};
inline constexpr Name<ResumeMode> kResumeModes[] = {{"Latest", ResumeMode::kLatest}, {"Never", ResumeMode::kNever}};
inline constexpr Name<GangPolicy> kGangPolicies[] = {
    {"None", GangPolicy::kNone}, {"MinReplicas", GangPolicy::kMinReplicas, false}, {"All", GangPolicy::kAll, false}};
inline constexpr Name<SchedulingProvider> kSchedulingProviders[] = {
    {"Auto", SchedulingProvider::kAuto},
    {"None", SchedulingProvider::kNone},
    {"Kubernetes", SchedulingProvider::kKubernetes, false},
    {"Volcano", SchedulingProvider::kVolcano, false},
    {"SchedulerPlugins", SchedulingProvider::kSchedulerPlugins, false}};

// Whether a pod is started again is decided by the failure policy, not on its node.
inline constexpr Name<std::string_view> kPodRestartPolicies[] = {{"Never", "Never"}};

inline constexpr std::int64_t kHour = 3600;
inline constexpr std::int64_t kDay = 24 * kHour;
inline constexpr std::int64_t kYear = 365 * kDay;
inline constexpr int kMaxWorkers = 10000;
inline constexpr int kMaxParameterServers = 1000;
inline constexpr int kMaxGpus = 64;  // of one worker
inline constexpr int kMaxEpochs = 100000;
inline constexpr double kMaxDelta = 1e6;  // of a metric, below which one change is no improvement
inline constexpr std::int64_t kMaxUpdates = std::int64_t{1} << 48;
inline constexpr int kMaxRestarts = 1000000;
// With the greatest batchSize, the samples of an update fit the numbers of the data plan.
inline constexpr int kMaxMinibatches = 2048;

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_FIELD_NAMES_H_
