#include "trainer/tracking/mlflow.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/http/http_client.h"
#include "trainer/tracking/tracker_thread.h"

namespace downpour::tracking {
namespace {

using json = nlohmann::ordered_json;

// What the API takes at once, of any version: https://mlflow.org/docs/latest/rest-api.html.
constexpr std::size_t kMetricsPerRequest = 1000;
constexpr std::size_t kEntriesPerRequest = 100;  // parameters, or tags
constexpr std::size_t kNameBytes = 250;
constexpr std::size_t kParameterBytes = 500;
constexpr std::size_t kTagBytes = 5000;
constexpr std::size_t kAnswerBytes = 8 << 20;  // a run comes with all of its tags and parameters
constexpr char kUidTag[] = "downpour.job_uid";

std::string FromEnvironment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(absl::StripAsciiWhitespace(value));
}

// At most so many bytes, and no part of a character.
std::string Cut(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// With the characters that MLflow has in names.
std::string Name(const std::string& text) {
  std::string name = Cut(text, kNameBytes);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains("_-. /", c)) c = '_';
  }
  return name;
}

// JSON has no such numbers; protobuf's has these texts.
json Value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::int64_t Milliseconds(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1e3)); }

json Entry(const std::string& key, const std::string& value) { return {{"key", key}, {"value", value}}; }

// Empty: there is no text at this path.
std::string TextAt(const json& document, const char* path) {
  const json::json_pointer pointer(path);
  if (!document.contains(pointer)) return {};
  const json& found = document.at(pointer);
  return found.is_string() ? found.get<std::string>() : std::string();
}

absl::StatusCode StatusCodeOf(int http_status, absl::string_view error) {
  if (http_status == 429 || http_status >= 500) return absl::StatusCode::kUnavailable;
  if (http_status == 401 || http_status == 403) return absl::StatusCode::kPermissionDenied;
  // Another 404 is that of a server that has no such API.
  if (error == "RESOURCE_DOES_NOT_EXIST") return absl::StatusCode::kNotFound;
  if (error == "RESOURCE_ALREADY_EXISTS") return absl::StatusCode::kAlreadyExists;
  return absl::StatusCode::kInvalidArgument;
}

// The time that a call has for all its requests.
class Deadline {
 public:
  explicit Deadline(absl::Duration limit) : end_(SystemClock().Now() + limit) {}
  absl::Duration left() const { return end_ - SystemClock().Now(); }

 private:
  const absl::Duration end_;
};

class MlflowTracker final : public Tracker {
 public:
  MlflowTracker(MlflowOptions options, std::string authorization, std::unique_ptr<http::Client> client)
      : options_(std::move(options)), authorization_(std::move(authorization)), client_(std::move(client)) {}

  std::string name() const override { return "mlflow"; }

  absl::Status Begin(const Run& run, absl::Duration limit) override {
    const Deadline deadline(limit);
    const absl::StatusOr<std::string> experiment = Experiment(deadline);
    if (!experiment.ok()) return experiment.status();
    const absl::StatusOr<json> found = Post("runs/search",
                                            {{"experiment_ids", json::array({*experiment})},
                                             {"filter", absl::StrCat("tags.`", kUidTag, "` = '", run.job_uid, "'")},
                                             {"max_results", 1}},
                                            deadline);
    if (!found.ok()) return found.status();
    run_id_ = TextAt(*found, "/runs/0/info/run_id");
    absl::Status status;
    if (run_id_.empty()) {
      status = Create(run, *experiment, deadline);
    } else {
      status = Post("runs/update", {{"run_id", run_id_}, {"status", "RUNNING"}}, deadline).status();
    }
    if (!status.ok()) return status;
    return LogParameters(run, *found, deadline);
  }

  absl::Status Write(absl::Span<const Point> points, absl::Duration limit) override {
    const Deadline deadline(limit);
    std::vector<json> metrics;
    std::map<std::string, std::string> tags;
    for (const Point& point : points) {
      for (const Scalar& scalar : point.scalars) {
        metrics.push_back({{"key", Name(scalar.name)},
                           {"value", Value(scalar.value)},
                           {"timestamp", Milliseconds(point.time)},
                           {"step", point.step}});
      }
      for (const Text& text : point.texts) tags[absl::StrCat("downpour.", Name(text.name))] = Cut(text.text, kTagBytes);
    }
    absl::Status logged = LogAll("metrics", std::move(metrics), kMetricsPerRequest, deadline);
    if (!logged.ok()) return logged;
    std::vector<json> entries;
    entries.reserve(tags.size());
    for (const auto& [key, value] : tags) entries.push_back(Entry(key, value));
    return LogAll("tags", std::move(entries), kEntriesPerRequest, deadline);
  }

  absl::Status End(Outcome outcome, double time, absl::Duration limit) override {
    const char* const status = outcome == Outcome::kSucceeded ? "FINISHED"
                               : outcome == Outcome::kFailed  ? "FAILED"
                                                              : "KILLED";
    return Post("runs/update", {{"run_id", run_id_}, {"status", status}, {"end_time", Milliseconds(time)}},
                Deadline(limit))
        .status();
  }

  void Hurry(absl::Duration left) override {
    end_by_.store(absl::ToInt64Nanoseconds(SystemClock().Now() + left), std::memory_order_relaxed);
  }

 private:
  // Its id.
  absl::StatusOr<std::string> Experiment(const Deadline& deadline) {
    const absl::StatusOr<json> found =
        Send("GET", absl::StrCat("experiments/get-by-name?experiment_name=", http::Encode(options_.experiment, false)),
             "", deadline);
    if (absl::IsNotFound(found.status())) {
      const absl::StatusOr<json> created = Post("experiments/create", {{"name", options_.experiment}}, deadline);
      // Another job was faster.
      if (absl::IsAlreadyExists(created.status())) return absl::UnavailableError(created.status().message());
      if (!created.ok()) return created.status();
      return IdAt(*created, "/experiment_id", "experiments/create");
    }
    if (!found.ok()) return found.status();
    if (TextAt(*found, "/experiment/lifecycle_stage") == "deleted") {
      return absl::FailedPreconditionError(absl::StrCat(options_.uri, ": the experiment \"",
                                                        http::Printable(options_.experiment),
                                                        "\" is deleted, expected one that is active"));
    }
    return IdAt(*found, "/experiment/experiment_id", "experiments/get-by-name");
  }

  absl::Status Create(const Run& run, const std::string& experiment, const Deadline& deadline) {
    const std::string& run_name = options_.run_name.empty() ? run.job_name : options_.run_name;
    const absl::StatusOr<json> created =
        Post("runs/create",
             {{"experiment_id", experiment},
              {"run_name", run_name},
              {"start_time", Milliseconds(run.time)},
              {"tags",
               {Entry(kUidTag, run.job_uid), Entry("downpour.job", run.job_name), Entry("mlflow.runName", run_name),
                Entry("mlflow.source.name", "downpour"),
                Entry("mlflow.note.content", Cut(absl::StrCat("```json\n", run.configuration, "\n```"), kTagBytes))}}},
             deadline);
    if (!created.ok()) return created.status();
    const absl::StatusOr<std::string> id = IdAt(*created, "/run/info/run_id", "runs/create");
    if (id.ok()) run_id_ = *id;
    return id.status();
  }

  // Those that the run, as it was found, has not: they cannot be changed, and those of a run that goes on may differ.
  absl::Status LogParameters(const Run& run, const json& found, const Deadline& deadline) {
    std::set<std::string> known;
    if (const json::json_pointer place("/runs/0/data/params"); found.contains(place)) {
      for (const json& parameter : found.at(place)) known.insert(TextAt(parameter, "/key"));
    }
    std::vector<json> parameters;
    for (const auto& [key, value] : run.hyperparameters) {
      if (known.insert(Name(key)).second) parameters.push_back(Entry(Name(key), Cut(value, kParameterBytes)));
    }
    return LogAll("params", std::move(parameters), kEntriesPerRequest, deadline);
  }

  absl::Status LogAll(const char* kind, std::vector<json> entries, std::size_t at_once, const Deadline& deadline) {
    for (std::size_t begin = 0; begin < entries.size(); begin += at_once) {
      json some = json::array();
      const std::size_t end = std::min(entries.size(), begin + at_once);
      for (std::size_t i = begin; i < end; ++i) some.push_back(std::move(entries[i]));
      absl::Status status = Post("runs/log-batch", {{"run_id", run_id_}, {kind, some}}, deadline).status();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> IdAt(const json& answer, const char* path, const char* call) const {
    std::string id = TextAt(answer, path);
    if (!id.empty()) return id;
    return absl::InternalError(absl::StrCat(options_.uri, ": ", call, ": the answer has no text at ", path));
  }

  absl::StatusOr<json> Post(const std::string& call, const json& body, const Deadline& deadline) {
    // Text from other processes may hold bytes that are no UTF-8.
    return Send("POST", call, body.dump(-1, ' ', false, json::error_handler_t::replace), deadline);
  }

  absl::StatusOr<json> Send(const char* method, const std::string& call, const std::string& body,
                            const Deadline& deadline) {
    http::Request request;
    request.method = method;
    request.url = absl::StrCat(options_.uri, "/api/2.0/mlflow/", call);
    request.headers = {{"content-type", "application/json"}};
    if (!authorization_.empty()) request.headers.emplace_back("authorization", authorization_);
    request.body = {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()};
    request.max_answer_bytes = kAnswerBytes;
    request.cancelled = [this] {
      return absl::ToInt64Nanoseconds(SystemClock().Now()) >= end_by_.load(std::memory_order_relaxed);
    };
    const http::Answer answer = client_->Send(request, deadline.left());
    const std::string subject = absl::StrCat(options_.uri, ": ", call.substr(0, call.find('?')), ": ");
    if (!answer.status.ok()) {
      return absl::Status(answer.status.code(), absl::StrCat(subject, answer.status.message()));
    }
    json document = json::parse(answer.body, nullptr, false);
    if (answer.http_status == 200 && document.is_object()) return document;
    if (answer.http_status == 200) return absl::InternalError(absl::StrCat(subject, "the answer is no JSON"));
    const std::string error = TextAt(document, "/error_code");
    std::string message = absl::StrCat(subject, "HTTP status ", answer.http_status);
    if (!error.empty()) {
      absl::StrAppend(&message, " ", http::Printable(error), ": ", http::Printable(TextAt(document, "/message")));
    }
    return absl::Status(StatusCodeOf(answer.http_status, error), message);
  }

  const MlflowOptions options_;
  const std::string authorization_;
  const std::unique_ptr<http::Client> client_;
  std::string run_id_;
  std::atomic<std::int64_t> end_by_{std::numeric_limits<std::int64_t>::max()};  // nanoseconds of SystemClock
};

}  // namespace

absl::StatusOr<MlflowOptions> MlflowOptionsFromEnvironment(std::string uri, std::string experiment,
                                                           std::string run_name) {
  MlflowOptions options;
  options.uri = uri.empty() ? FromEnvironment("MLFLOW_TRACKING_URI") : std::move(uri);
  if (options.uri.empty()) {
    return absl::InvalidArgumentError(
        "spec.tracking.mlflow.uri is empty, and the environment variable MLFLOW_TRACKING_URI of the coordinator too; "
        "expected http(s)://HOST[:PORT][/PREFIX]");
  }
  options.experiment = std::move(experiment);
  options.run_name = std::move(run_name);
  options.token = FromEnvironment("MLFLOW_TRACKING_TOKEN");
  options.user = FromEnvironment("MLFLOW_TRACKING_USERNAME");
  options.password = FromEnvironment("MLFLOW_TRACKING_PASSWORD");
  options.ca_bundle = FromEnvironment("MLFLOW_TRACKING_SERVER_CERT_PATH");
  return options;
}

absl::StatusOr<std::unique_ptr<Tracker>> MakeMlflowTracker(MlflowOptions options) {
  absl::string_view rest = options.uri;
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") || absl::ConsumePrefix(&rest, "https://");
  // What is before '@' may be a secret: it is not shown.
  if (absl::StrContains(rest, '@')) {
    return absl::InvalidArgumentError(
        "the URI of the MLflow server has a user name, expected http(s)://HOST[:PORT][/PREFIX], and the user in "
        "MLFLOW_TRACKING_USERNAME");
  }
  if (!has_scheme || rest.empty() || rest.front() == '/' || rest.find_first_of("?# ") != absl::string_view::npos ||
      http::HasControlCharacters(rest)) {
    return absl::InvalidArgumentError(absl::StrCat("the URI of the MLflow server is \"", http::Printable(options.uri),
                                                   "\", expected http(s)://HOST[:PORT][/PREFIX]"));
  }
  while (absl::EndsWith(options.uri, "/")) options.uri.pop_back();
  for (const std::string* const secret : {&options.token, &options.user, &options.password}) {
    if (http::HasControlCharacters(*secret)) {
      return absl::InvalidArgumentError("the MLflow credentials have control characters, expected one line each");
    }
  }
  std::string authorization;
  if (!options.token.empty()) {
    authorization = absl::StrCat("Bearer ", options.token);
  } else if (!options.user.empty()) {
    authorization = absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(options.user, ":", options.password)));
  }
  absl::StatusOr<std::unique_ptr<http::Client>> client = http::Client::Create({.ca_bundle = options.ca_bundle});
  if (!client.ok()) return client.status();
  return std::make_unique<MlflowTracker>(std::move(options), std::move(authorization), *std::move(client));
}

}  // namespace downpour::tracking
