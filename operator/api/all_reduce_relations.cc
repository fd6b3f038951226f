#include "operator/api/all_reduce_relations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "operator/api/field_names.h"

namespace downpour::api {
namespace {

// A field that is wrong by itself has been told already.
void Refuse(FieldErrors& errors, const std::string& path, bool given, const char* why) {
  if (given && errors.IsClean(path)) errors.Add(path, absl::StrCat("is not for the strategy AllReduce: ", why));
}

void CheckOptimizer(const OptimizerSpec& optimizer, FieldErrors& errors) {
  const std::string path = "spec.update.optimizer";
  if (!errors.IsClean(path)) return;
  const std::string why = "; with the strategy AllReduce no update is late";
  if (optimizer.type == OptimizerType::kDelayCompensatedSgd) {
    errors.Add(path + ".type", "must not be DelayCompensatedSGD" + why);
  }
  if (optimizer.staleness_rule == StalenessRule::kGap) errors.Add(path + ".stalenessRule", "must not be Gap" + why);
  if (optimizer.staleness_aware.value_or(false)) errors.Add(path + ".stalenessAware", "must not be true" + why);
}

void RefuseCodec(const std::string& path, Codec codec, const char* rule, FieldErrors& errors) {
  if (!errors.IsClean(path)) return;
  errors.Add(path, absl::StrCat(rule, "; got ", std::string(schema::Choice<Codec>(schema::kCodecs).NameOf(codec))));
}

}  // namespace

void CheckAllReduce(const TrainingJobSpec& spec, FieldErrors& errors) {
  Refuse(errors, "spec.parameterServer", spec.parameter_server.has_value(), "it has no parameter servers");
  Refuse(errors, "spec.podCleanup.parameterServer", spec.pod_cleanup.parameter_server.has_value(),
         "it has no parameter servers");
  Refuse(errors, "spec.checkpoint.extraMemory", spec.checkpoint.has_value() && !spec.checkpoint->extra_memory.empty(),
         "it is that of parameter servers");
  const UpdateSpec& update = spec.update;
  if (errors.IsClean("spec.update.mode") && update.mode != UpdateMode::kSynchronous) {
    errors.Add("spec.update.mode",
               absl::StrCat("must be Synchronous, or absent, with the strategy AllReduce: its workers take each step "
                            "together; got ",
                            std::string(schema::Choice<UpdateMode>(schema::kUpdateModes).NameOf(update.mode))));
  }
  Refuse(errors, "spec.update.staleness", update.staleness.has_value(), "no worker is ahead of the others");
  Refuse(errors, "spec.update.warmStart", update.warm_start.has_value(), "no worker trains alone");
  constexpr char kNoSteps[] = "what is added up is the gradients of values that all workers have";
  Refuse(errors, "spec.update.localSteps", update.local_steps > 1, kNoSteps);
  Refuse(errors, "spec.update.fetchEvery", update.fetch_every > 1, kNoSteps);
  Refuse(errors, "spec.update.localOptimizer", update.local_optimizer.has_value(), kNoSteps);
  Refuse(errors, "spec.update.lbfgs", update.lbfgs.has_value(), "it is of the mode Sandblaster");
  if (update.codec != Codec::kFp32 && update.codec != Codec::kBf16) {
    RefuseCodec("spec.update.codec", update.codec,
                "must be fp32 or bf16 with the strategy AllReduce: what the others leave out of a gradient has to be "
                "added to the next one, which workers that come and go do not have",
                errors);
  }
  if (update.pull_codec != Codec::kFp32) {
    RefuseCodec("spec.update.pullCodec", update.pull_codec,
                "must be fp32 with the strategy AllReduce: no values are pulled", errors);
  }
  CheckOptimizer(update.optimizer, errors);
  const bool scales = spec.elastic.has_value() && spec.elastic->batch_policy == BatchPolicy::kScaleLearningRate;
  if (scales && update.updates_per_step.has_value() && errors.IsClean("spec.update.updatesPerStep")) {
    errors.Add("spec.update.updatesPerStep",
               "is for the batchPolicy KeepGlobalBatch: with ScaleLearningRate a step "
               "has one update of each worker");
  }
  const bool divides = spec.elastic.has_value() && spec.elastic->state_copies.has_value();
  if (divides && update.optimizer.type == OptimizerType::kLamb && errors.IsClean("spec.elastic.stateCopies")) {
    errors.Add(
        "spec.elastic.stateCopies",
        "is not for the optimizer LAMB: its rule takes the norms of whole layers, of which a worker updates a part");
  }
}

}  // namespace downpour::api
