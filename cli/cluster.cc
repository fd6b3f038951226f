#include "cli/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "operator/api/edit_distance.h"
#include "operator/controller/objects.h"
#include "operator/kube/api_error.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_transport.h"
#include "operator/planner/context.h"

namespace downpour::cli {
namespace {

using kube::FindText;
using kube::Json;

constexpr int kHttpThreads = 4;
constexpr std::int64_t kPage = 500;
constexpr int kMostPages = 40;
constexpr std::size_t kMostSimilar = 3;

// As kubectl: what was named, else the files, else the pod that this runs in.
absl::StatusOr<std::unique_ptr<kube::CredentialSource>> FindCredentials(const ClusterOptions& options) {
  absl::StatusOr<std::unique_ptr<kube::CredentialSource>> found = kube::KubeconfigCredentials(
      options.kubeconfig, options.context, options.exec_plugins ? kube::ExecPlugins::kRun : kube::ExecPlugins::kRefuse);
  const bool named = !options.kubeconfig.empty() || !options.context.empty();
  if (found.ok()) return found;
  if (!named && absl::IsNotFound(found.status())) {
    absl::StatusOr<std::unique_ptr<kube::CredentialSource>> inside = kube::InClusterCredentials();
    if (inside.ok()) return inside;
  }
  const bool refused = absl::IsPermissionDenied(found.status());
  return absl::InvalidArgumentError(
      absl::StrCat("kubeconfig: ", found.status().message(),
                   refused ? ": give --exec-plugins, or set DOWNPOUR_EXEC_PLUGINS=true, if you trust the file" : ""));
}

// "worker-2" if the pod may be one of the job's; also of one that is gone.
std::optional<std::string> MemberOf(const std::string& job, absl::string_view pod) {
  if (!absl::ConsumePrefix(&pod, job) || !absl::ConsumePrefix(&pod, "-")) return std::nullopt;
  for (const api::Role role : planner::kStartOrder) {
    absl::string_view index = pod;
    int number = 0;
    if (absl::ConsumePrefix(&index, absl::StrCat(std::string(api::ToString(role)), "-")) &&
        absl::SimpleAtoi(index, &number)) {
      return std::string(pod);
    }
  }
  return std::nullopt;
}

std::optional<double> EventTime(const Json& event) {
  for (const std::string& text : {FindText(event, {"series", "lastObservedTime"}), FindText(event, {"lastTimestamp"}),
                                  FindText(event, {"eventTime"}), FindText(event, {"metadata", "creationTimestamp"})}) {
    if (const std::optional<double> time = kube::ParseTime(text)) return time;
  }
  return std::nullopt;
}

std::optional<SituationEvent> DecodeEvent(const controller::JobRecord& job, const Json& object) {
  SituationEvent event;
  const std::string kind = FindText(object, {"involvedObject", "kind"});
  const std::string uid = FindText(object, {"involvedObject", "uid"});
  if (kind == kube::kPods.kind) {
    const std::optional<std::string> member = MemberOf(job.meta.name, FindText(object, {"involvedObject", "name"}));
    if (!member.has_value()) return std::nullopt;
    event.about = *member;
  } else if (uid.empty() || uid != job.meta.uid) {
    return std::nullopt;
  }
  event.time = EventTime(object).value_or(0);
  // Of an earlier job of the same name.
  if (event.time < job.meta.creation_time.value_or(0)) return std::nullopt;
  const auto count = kube::FindInteger(object, {"series", "count"});
  event.count = static_cast<int>(count.value_or(kube::FindInteger(object, {"count"}).value_or(1)));
  event.reason = FindText(object, {"reason"});
  event.message = FindText(object, {"message"});
  return event;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Open(const ClusterOptions& options) {
  absl::StatusOr<std::unique_ptr<kube::CredentialSource>> found = FindCredentials(options);
  if (!found.ok()) return found.status();
  const std::shared_ptr<kube::CredentialSource> credentials = *std::move(found);
  // Before the first request, whose time is short.
  if (absl::Status readable = credentials->Get(/*refresh=*/false).status(); !readable.ok()) return readable;
  if (absl::Status status = kube::InitialiseHttp(kHttpThreads); !status.ok()) return status;
  std::string namespace_name = options.namespace_name;
  if (namespace_name.empty()) namespace_name = credentials->default_namespace();
  if (options.all_namespaces) namespace_name.clear();
  return std::unique_ptr<Cluster>(
      new Cluster(credentials->server(), namespace_name, kube::MakeHttpTransport(credentials)));
}

Cluster::Cluster(std::string server, std::string namespace_name, std::shared_ptr<kube::Transport> transport)
    : server_(std::move(server)),
      namespace_(std::move(namespace_name)),
      client_(std::move(transport), {.timeout = kDeadline}) {}

absl::Status Cluster::Explain(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return status;
  const auto say = [&status](const auto&... parts) { return absl::Status(status.code(), absl::StrCat(parts...)); };
  const std::optional<kube::ApiError> error = kube::GetApiError(status);
  if (!error.has_value()) return say("no answer from the API server ", server_, ": ", status.message());
  if (error->code == 401) return say(server_, " does not accept the credentials: ", error->message);
  if (error->code == 403) return say("no permission: ", error->message);
  // Of a path that it does not know, the server says no more than that.
  if (error->code == 404 && error->reason.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(server_, " has no TrainingJobs: their custom resource definition is not installed"));
  }
  if (error->code >= 500 || error->message.empty()) return say(server_, ": ", status.message());
  return say(error->message);
}

absl::StatusOr<std::vector<Json>> Cluster::ListAll(const kube::Resource& resource, const std::string& namespace_name,
                                                   kube::ListOptions options) {
  std::vector<Json> items;
  options.limit = kPage;
  for (int page = 0; page < kMostPages; ++page) {
    absl::StatusOr<kube::ListPage> list = client_.List(resource, namespace_name, options);
    if (!list.ok()) return Explain(list.status());
    std::move(list->items.begin(), list->items.end(), std::back_inserter(items));
    options.continue_token = list->continue_token;
    if (options.continue_token.empty()) break;
  }
  return items;
}

absl::StatusOr<controller::JobRecord> Cluster::GetJob(const std::string& name) {
  const absl::StatusOr<Json> object = client_.Get(kube::kTrainingJobs, namespace_, name);
  const std::optional<kube::ApiError> error = kube::GetApiError(object.status());
  if (!object.ok() && !(error.has_value() && error->code == 404 && !error->reason.empty())) {
    return Explain(object.status());
  }
  if (object.ok()) {
    std::optional<controller::JobRecord> record = controller::DecodeJob(*object);
    if (record.has_value()) return *std::move(record);
    return absl::DataLossError(absl::StrCat(server_, ": TrainingJob ", name, " has no name or uid"));
  }
  std::string message = absl::StrCat("there is no TrainingJob ", name, " in namespace ", namespace_);
  if (const absl::StatusOr<std::vector<controller::JobRecord>> jobs = ListJobs(); jobs.ok()) {
    std::vector<std::string> names;
    for (const controller::JobRecord& job : *jobs) names.push_back(job.meta.name);
    const std::vector<std::string> similar = SimilarNames(name, names);
    if (names.empty()) {
      message += ", nor any other";
    } else if (!similar.empty()) {
      absl::StrAppend(&message, "; there is ", absl::StrJoin(similar, ", "));
    } else {
      absl::StrAppend(&message, "; it has ", names.size(), ": see downpour get -n ", namespace_);
    }
  }
  return absl::NotFoundError(message);
}

absl::Status Cluster::Scale(const controller::JobRecord& job, std::optional<int> ps, std::optional<int> workers) {
  Json spec = Json::object();
  if (ps.has_value()) spec["parameterServer"]["replicas"] = *ps;
  if (workers.has_value()) spec["worker"]["replicas"] = *workers;
  // Another job may have taken the name.
  const Json patch = {{"metadata", {{"uid", job.meta.uid}}}, {"spec", std::move(spec)}};
  return Explain(client_.MergePatch(kube::kTrainingJobs, job.meta.namespace_name, job.meta.name, patch).status());
}

absl::StatusOr<std::vector<controller::JobRecord>> Cluster::ListJobs() {
  const absl::StatusOr<std::vector<Json>> items = ListAll(kube::kTrainingJobs, namespace_, {});
  if (!items.ok()) return items.status();
  std::vector<controller::JobRecord> jobs;
  for (const Json& item : *items) {
    if (std::optional<controller::JobRecord> job = controller::DecodeJob(item)) jobs.push_back(*std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const controller::JobRecord& a, const controller::JobRecord& b) {
    return std::tie(a.meta.namespace_name, a.meta.name) < std::tie(b.meta.namespace_name, b.meta.name);
  });
  return jobs;
}

absl::StatusOr<std::vector<controller::Pod>> Cluster::ListPods(const controller::JobRecord& job) {
  kube::ListOptions options;
  options.label_selector = controller::PodSelector(job.meta.uid);
  const absl::StatusOr<std::vector<Json>> items = ListAll(kube::kPods, job.meta.namespace_name, options);
  if (!items.ok()) return items.status();
  std::vector<controller::Pod> pods;
  for (const Json& item : *items) {
    if (std::optional<controller::Pod> pod = controller::DecodePod(item)) pods.push_back(*std::move(pod));
  }
  std::sort(pods.begin(), pods.end(), [](const controller::Pod& a, const controller::Pod& b) {
    return std::tie(a.role, a.index, a.incarnation) < std::tie(b.role, b.index, b.incarnation);
  });
  return pods;
}

absl::Status Cluster::KillPod(const controller::Pod& pod) {
  kube::DeleteOptions options;
  options.preconditions.uid = pod.meta.uid;
  options.grace_seconds = 0;
  const absl::Status status = client_.Delete(kube::kPods, pod.meta.namespace_name, pod.meta.name, options);
  // Another pod has its name by now.
  if (absl::IsNotFound(status) || absl::IsAborted(status)) {
    return absl::NotFoundError(absl::StrCat("pod ", pod.meta.name, " is gone"));
  }
  return Explain(status);
}

absl::StatusOr<std::vector<SituationEvent>> Cluster::ListWarnings(const controller::JobRecord& job) {
  kube::ListOptions options;
  options.field_selector = "type=Warning";
  const absl::StatusOr<std::vector<Json>> items = ListAll(kube::kEvents, job.meta.namespace_name, options);
  if (!items.ok()) return items.status();
  std::vector<SituationEvent> events;
  for (const Json& item : *items) {
    if (std::optional<SituationEvent> event = DecodeEvent(job, item)) events.push_back(*std::move(event));
  }
  return events;
}

absl::Status Cluster::ReadLog(const controller::Pod& pod, kube::LogOptions options, const std::stop_token& stop,
                              const std::function<bool(std::string_view time, std::string_view line)>& on_line) {
  options.container = controller::kContainerName;
  return Explain(client_.ReadLog(pod.meta.namespace_name, pod.meta.name, options, stop, on_line));
}

std::vector<std::string> SimilarNames(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : names) {
    const std::size_t distance = api::EditDistance(name, candidate);
    const bool extends = absl::StartsWith(candidate, name) || absl::StartsWith(name, candidate);
    if (extends || distance <= std::max<std::size_t>(1, name.size() / 3)) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  if (near.size() > kMostSimilar) near.resize(kMostSimilar);
  std::vector<std::string> similar;
  similar.reserve(near.size());
  for (auto& [distance, candidate] : near) similar.push_back(std::move(candidate));
  return similar;
}

}  // namespace downpour::cli
