#include "trainer/tracking/progress_points.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/data/files/shown_path.h"

namespace downpour::tracking {
namespace {

using json = nlohmann::ordered_json;

absl::StatusOr<std::string> ToJson(const v1::TrainingConfig& config) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const google::protobuf::util::Status status = google::protobuf::util::MessageToJsonString(config, &text, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("the configuration has no JSON form: ", status.ToString()));
  return text;
}

void Flatten(const json& value, const std::string& path, std::vector<std::pair<std::string, std::string>>* to) {
  if (value.is_structured()) {
    for (const auto& [name, inner] : value.items())
      Flatten(inner, path.empty() ? name : absl::StrCat(path, ".", name), to);
  } else {
    to->emplace_back(path, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

// "training" of PHASE_TRAINING.
std::string PhaseName(v1::JobPhase phase) {
  const std::string name = v1::JobPhase_Name(phase);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "PHASE_"));
}

bool HasBegun(v1::JobPhase phase) {
  return phase == v1::PHASE_TRAINING || phase == v1::PHASE_FINISHING || phase == v1::PHASE_DONE;
}

}  // namespace

absl::StatusOr<Run> MakeRun(const v1::TrainingConfig& given, double time) {
  v1::TrainingConfig config = given;
  config.mutable_dataset()->set_path(data::ShownPath(config.dataset().path()));
  config.mutable_dataset()->set_test_path(data::ShownPath(config.dataset().test_path()));
  Run run;
  run.job_name = config.job_name();
  run.job_uid = config.job_uid();
  run.time = time;
  absl::StatusOr<std::string> configuration = ToJson(config);
  if (!configuration.ok()) return configuration.status();
  run.configuration = *std::move(configuration);
  v1::TrainingConfig hyperparameters = config;  // without what changes no result
  hyperparameters.clear_job_uid();
  hyperparameters.clear_job_name();
  hyperparameters.clear_output_directory();
  hyperparameters.clear_keep_output_seconds();
  hyperparameters.clear_checkpoint();
  hyperparameters.clear_tracking();
  const absl::StatusOr<std::string> text = ToJson(hyperparameters);
  if (!text.ok()) return text.status();
  Flatten(json::parse(*text, nullptr, false), "", &run.hyperparameters);
  return run;
}

ProgressPoints::ProgressPoints(const v1::TrainingConfig& config)
    : histograms_(config.tracking().tensorboard().histograms()) {}

std::vector<Point> ProgressPoints::Add(absl::Duration now, double time, const v1::ProgressReply& progress,
                                       absl::Span<const std::uint64_t> evaluated_at) {
  std::vector<Point> points;
  Point point;
  point.step = static_cast<std::int64_t>(progress.updates_applied());
  point.time = time;
  const std::uint64_t generation = progress.view().generation();
  if (HasBegun(progress.phase()) && generation != generation_) {
    generation_ = generation;
    updates_ = 0;
    next_ = -absl::InfiniteDuration();
    point.begins_history = true;
  }
  const bool another_phase = !has_phase_ || progress.phase() != phase_;
  if (another_phase) {
    has_phase_ = true;
    phase_ = progress.phase();
    point.texts.push_back({"phase", absl::StrCat(PhaseName(phase_), ", generation ", generation,
                                                 progress.message().empty() ? "" : ": ", progress.message())});
  }
  if (IsDue(now, progress)) AddFigures(progress, &point);
  if (point.begins_history || !point.scalars.empty() || !point.texts.empty()) points.push_back(std::move(point));

  for (int i = 0; i < progress.evaluations_size(); ++i) {
    const v1::Evaluation& evaluation = progress.evaluations(i);
    std::string& told = evaluations_[{generation, evaluation.dataset_epoch()}];
    std::string text = evaluation.SerializeAsString();
    if (text == told) continue;
    told = std::move(text);  // the final model is evaluated again
    Point& result = points.emplace_back();
    result.step =
        static_cast<std::int64_t>(std::min(evaluated_at[static_cast<std::size_t>(i)], progress.updates_applied()));
    result.time = time;
    result.scalars.push_back({"test/loss", evaluation.loss()});
    for (const v1::Metric& metric : evaluation.metrics()) {
      result.scalars.push_back({absl::StrCat("test/", metric.name()), metric.value()});
    }
    if (evaluation.metrics().empty() && evaluation.has_accuracy()) {
      result.scalars.push_back({"test/Accuracy", evaluation.accuracy()});
    }
  }
  return points;
}

bool ProgressPoints::IsDue(absl::Duration now, const v1::ProgressReply& progress) {
  if (!HasBegun(progress.phase()) || progress.updates_applied() <= updates_) return false;
  if (now < next_ && progress.phase() == v1::PHASE_TRAINING) return false;
  begin_ = std::min(begin_, now);
  next_ = now + std::clamp((now - begin_) / 200, absl::Seconds(1), absl::Seconds(30));
  updates_ = progress.updates_applied();
  return true;
}

void ProgressPoints::AddFigures(const v1::ProgressReply& progress, Point* point) const {
  const auto add = [point](const char* name, double value) { point->scalars.push_back({name, value}); };
  if (progress.has_loss()) add("train/loss", progress.loss());
  if (progress.has_samples_per_second()) add("train/samplesPerSecond", progress.samples_per_second());
  if (progress.has_learning_rate()) add("train/learningRate", progress.learning_rate());
  if (progress.updates_per_epoch() > 0) {
    add("train/epochs",
        static_cast<double>(progress.updates_applied()) / static_cast<double>(progress.updates_per_epoch()));
  }
  std::map<std::string, std::vector<double>> of_workers;
  int workers = 0;
  for (const v1::MemberProgress& member : progress.members()) {
    if (member.role() != "worker") continue;
    ++workers;
    of_workers["workers/staleness"].push_back(member.worker().staleness());
    if (member.worker().has_loss()) of_workers["workers/loss"].push_back(member.worker().loss());
    if (member.worker().has_samples_per_second()) {
      of_workers["workers/samplesPerSecond"].push_back(member.worker().samples_per_second());
    }
  }
  add("job/workers", workers);
  add("job/generation", static_cast<double>(progress.view().generation()));
  if (!histograms_) return;
  for (auto& [name, values] : of_workers) {
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    if (!values.empty()) point->histograms.push_back(MakeHistogram(name, values));
  }
}

}  // namespace downpour::tracking
