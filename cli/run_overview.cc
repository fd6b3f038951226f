#include "cli/run_overview.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/files.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"
#include "cli/run_folder.h"
#include "cli/test_metrics_json.h"
#include "operator/api/manifest.h"
#include "operator/job/coordinator_client.h"
#include "operator/planner/context.h"
#include "operator/planner/ring.h"

namespace downpour::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr absl::Duration kAskTimeLimit = absl::Milliseconds(500);

struct SummaryFacts {
  std::string phase;
  std::string message;
  double epochs = 0;
  std::vector<TestMetric> test_metrics;
  int restarts = 0;
};

// The metrics of a line or a summary; an earlier version wrote an accuracy alone, and null where there was none.
std::vector<TestMetric> ReadTestMetrics(const json& object, const char* metrics, const char* accuracy) {
  if (const auto found = object.find(metrics); found != object.end()) return MetricsFromJson(*found);
  const json& value = object.at(accuracy);
  return value.is_number() ? AccuracyAlone(value.get<double>()) : std::vector<TestMetric>();
}

// Absent: there is no summary, or it is none of ours.
std::optional<SummaryFacts> ReadSummary(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  try {
    const json document = json::parse(*text);
    SummaryFacts facts;
    facts.phase = document.at("phase").get<std::string>();
    facts.message = document.value("message", "");
    facts.epochs = document.at("epochs").get<double>();
    facts.test_metrics = ReadTestMetrics(document, "testMetrics", "testAccuracy");
    facts.restarts = document.at("restarts").get<int>();
    return facts;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string FormatAccuracy(const RunOverview& run) {
  const std::optional<double> accuracy = AccuracyOf(run.test_metrics);
  return accuracy.has_value() ? FormatDecimal(*accuracy, 4) : "-";
}

// All but the accuracy.
std::string OtherMetrics(const RunOverview& run) {
  std::vector<TestMetric> metrics = run.test_metrics;
  std::erase_if(metrics, [](const TestMetric& metric) { return IsAccuracy(metric.name); });
  return MetricsText(metrics);
}

json RingToJson(const std::optional<api::RingStatus>& ring) {
  if (!ring.has_value()) return nullptr;
  return {{"members", ring->members},
          {"wanted", ring->wanted},
          {"formed", ring->formed},
          {"updatesPerStep", ring->updates_per_step},
          {"message", ring->message}};
}

json TextOrNull(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

}  // namespace

MetricsTail ParseMetrics(const std::string& text) {
  MetricsTail tail;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const json object = json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object()) continue;
    try {
      if (object.at("type") == "progress") {
        CurvePoint point;
        point.seconds = object.at("seconds").get<double>();
        point.updates = object.at("updates").get<std::uint64_t>();
        point.epochs = object.at("epochs").get<double>();
        if (object.at("loss").is_number()) point.loss = object.at("loss").get<double>();
        if (object.at("samplesPerSecond").is_number()) {
          point.samples_per_second = object.at("samplesPerSecond").get<double>();
        }
        point.workers = object.at("workers").get<int>();
        point.generation = object.value("generation", point.generation);
        point.samples = object.value("samples", point.samples);
        point.bytes = BytesFromJson(object);
        tail.curve.push_back(point);
      } else if (object.at("type") == "evaluation") {
        EvaluationPoint point;
        point.seconds = object.at("seconds").get<double>();
        point.generation = object.value("generation", point.generation);
        point.epochs = object.at("epochs").get<double>();
        point.metrics = ReadTestMetrics(object, "metrics", "accuracy");
        if (object.at("loss").is_number()) point.loss = object.at("loss").get<double>();
        tail.evaluations.push_back(std::move(point));
      }
    } catch (const json::exception&) {
      continue;  // written by another version
    }
  }
  return tail;
}

MetricsTail ReadMetrics(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  return text.ok() ? ParseMetrics(*text) : MetricsTail();
}

absl::StatusOr<RunOverview> ReadRunOverview(const std::string& root, double now) {
  const RunPaths paths{root};
  // Asked first: a run that ends between this and the reading of its summary is not taken for lost.
  const bool held = RunIsHeld(root);
  const absl::StatusOr<api::TrainingJob> read = ReadRunJob(root);
  if (!read.ok()) return read.status();
  const api::TrainingJob& job = *read;
  RunOverview overview;
  overview.name = std::filesystem::path(root).lexically_normal().filename().string();
  overview.run_directory = root;
  overview.job = job.metadata.name;
  overview.workers_desired = job.spec.worker.replicas;
  overview.ps_desired = planner::DesiredReplicas(job.spec, api::Role::kParameterServer);
  overview.has_ps = !planner::IsAllReduce(job.spec);
  overview.epochs_total = job.spec.training.whole_epochs();

  const absl::StatusOr<RunState> state = ReadRunState(root);
  if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
  if (state.ok()) {
    overview.phase = state->status.phase;
    if (state->status.worker.desired > 0) overview.workers_desired = state->status.worker.desired;
    overview.reason = state->status.reason;
    if (state->status.progress.has_value()) {
      overview.step = state->status.progress->step;
      overview.total_steps = state->status.progress->total_steps;
    }
    overview.restarts = state->status.restarts_total;
    overview.age_seconds = std::max(0.0, now - state->start_time);
    if (held) {
      overview.workers_ready = state->status.worker.ready;
      overview.ps_ready = state->status.parameter_server.ready;
      overview.ring = state->status.ring;
    }
  }
  if (overview.phase.empty()) overview.phase = "Pending";
  if (const std::optional<SummaryFacts> facts = ReadSummary(paths.Summary()); facts.has_value()) {
    overview.phase = facts->phase;
    overview.message = facts->message;
    overview.epochs = facts->epochs;
    overview.test_metrics = facts->test_metrics;
    overview.restarts = facts->restarts;
    return overview;
  }
  overview.running = held;
  if (!held) overview.phase = kLost;
  const MetricsTail metrics = ReadMetrics(paths.Metrics());
  if (!metrics.curve.empty()) {
    overview.epochs = metrics.curve.back().epochs;
    overview.step = metrics.curve.back().updates;
  }
  if (!metrics.evaluations.empty()) overview.test_metrics = metrics.evaluations.back().metrics;
  return overview;
}

absl::StatusOr<api::TrainingJob> ReadRunJob(const std::string& root) {
  const std::string file = RunPaths{root}.Job();
  absl::StatusOr<api::ParsedManifest> manifest = api::ReadManifest(file);
  if (!manifest.ok()) return manifest.status();
  if (manifest->errors.empty()) return std::move(manifest->job);
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", manifest->errors.front().ToString()));
}

absl::StatusOr<RunState> ReadRunState(const std::string& root) {
  const absl::StatusOr<std::string> text = ReadFile(RunPaths{root}.Status());
  if (!text.ok()) return text.status();
  return RunStateFromJson(*text);
}

absl::StatusOr<v1::ProgressReply> AskRun(const std::string& root, const std::string& job_uid) {
  const absl::StatusOr<std::string> address =
      ReadAddress(RunPaths{root}.Address(ProcessName(api::Role::kCoordinator, 0)));
  if (!address.ok()) return address.status();
  return job::AskProgress(*address, job_uid, kAskTimeLimit);
}

absl::StatusOr<std::string> FindRun(const std::string& name) {
  const std::string among_runs = absl::StrCat(kRunsDirectory, "/", name);
  for (const std::string& root : {name, among_runs}) {
    if (IsRunFolder(root)) return root;
  }
  return absl::NotFoundError(
      absl::StrCat(name, ": no run folder of that name, here or in ", kRunsDirectory,
                   "; a job on a cluster is meant if -n, -A, --context or --kubeconfig is given"));
}

std::string OverviewsToText(const std::vector<RunOverview>& runs, bool namespaces) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "PHASE", "WORKERS", "PS", "STEP", "EPOCHS", "ACCURACY", "METRICS", "RESTARTS", "AGE", "REASON"}};
  for (const RunOverview& run : runs) {
    const std::string metrics = OtherMetrics(run);
    rows.push_back(
        {run.name, run.phase, absl::StrCat(run.workers_ready, "/", run.workers_desired),
         run.has_ps ? absl::StrCat(run.ps_ready, "/", run.ps_desired) : "-", absl::StrCat(run.step),
         absl::StrFormat("%.1f/%s", run.epochs, run.epochs_total == 0 ? "?" : absl::StrCat(run.epochs_total)),
         FormatAccuracy(run), metrics.empty() ? "-" : metrics, absl::StrCat(run.restarts), FormatAge(run.age_seconds),
         run.reason});
  }
  constexpr std::ptrdiff_t kMetricsColumn = 7;
  if (std::all_of(runs.begin(), runs.end(), [](const RunOverview& run) { return OtherMetrics(run).empty(); })) {
    for (std::vector<std::string>& row : rows) row.erase(row.begin() + kMetricsColumn);
  }
  if (namespaces) {
    rows.front().insert(rows.front().begin(), "NAMESPACE");
    for (std::size_t i = 0; i < runs.size(); ++i) rows[i + 1].insert(rows[i + 1].begin(), runs[i].namespace_name);
  }
  return FormatTable(std::move(rows));
}

std::string OverviewsToJson(const std::vector<RunOverview>& runs) {
  json list = json::array();
  for (const RunOverview& run : runs) {
    const std::optional<double> accuracy = AccuracyOf(run.test_metrics);
    list.push_back({{"name", run.name},
                    {"namespace", TextOrNull(run.namespace_name)},
                    {"job", run.job},
                    {"phase", run.phase},
                    {"reason", run.reason},
                    {"workers", {{"ready", run.workers_ready}, {"desired", run.workers_desired}}},
                    {"ps", run.has_ps ? json({{"ready", run.ps_ready}, {"desired", run.ps_desired}}) : json(nullptr)},
                    {"ring", RingToJson(run.ring)},
                    {"step", run.step},
                    {"totalSteps", run.total_steps},
                    {"epochs", run.epochs},
                    {"epochsTotal", run.epochs_total},
                    {"testAccuracy", accuracy.has_value() ? json(*accuracy) : json(nullptr)},
                    {"testMetrics", MetricsToJson(run.test_metrics)},
                    {"restarts", run.restarts},
                    {"ageSeconds", run.age_seconds},
                    {"runDirectory", TextOrNull(run.run_directory)}});
  }
  return list.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace downpour::cli
