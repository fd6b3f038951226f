#include "operator/api/manifest.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <type_traits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/fields.h"
#include "operator/api/testing/corpus.h"
#include "operator/api/testing/random_job.h"
#include "tests/support/seeds.h"

namespace downpour::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using testing::kCorpus;
using testing::Manifests;
using testing::ReadText;

std::vector<std::string> Lines(const std::vector<FieldError>& errors) {
  std::vector<std::string> lines;
  lines.reserve(errors.size());
  for (const FieldError& error : errors) lines.push_back(error.ToString());
  return lines;
}

std::vector<std::string> Errors(std::string_view text,
                                const std::vector<std::pair<std::string, std::string>>& overrides = {}) {
  return Lines(ParseManifest(text, overrides).errors);
}

// The "# expect: " lines that a YAML file begins with, or the lines of the .expect file beside a JSON file.
std::vector<std::string> Expected(const std::filesystem::path& path) {
  constexpr std::string_view kMark = "# expect: ";
  const bool json = path.extension() == ".json";
  std::istringstream text(ReadText(json ? std::filesystem::path(path).replace_extension(".expect") : path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (json) {
      lines.push_back(line);
    } else if (line.starts_with(kMark)) {
      lines.push_back(line.substr(kMark.size()));
    } else {
      break;
    }
  }
  return lines;
}

TEST(ManifestCorpusTest, EveryBrokenManifestGivesExactlyItsErrors) {
  const auto paths = Manifests("invalid");
  EXPECT_GE(paths.size(), 48u);
  for (const auto& path : paths) {
    const auto expected = Expected(path);
    EXPECT_FALSE(expected.empty()) << path << " expects nothing";
    const auto parsed = ReadManifest(path.string());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(Lines(parsed->errors), expected) << path;
  }
}

TEST(ManifestCorpusTest, EveryValidManifestIsReadAndReadBackTheSame) {
  for (const auto& path : Manifests("valid")) {
    const auto parsed = ReadManifest(path.string());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(Lines(parsed->errors), IsEmpty()) << path;
    const ParsedManifest again = ParseManifest(ToJson(parsed->job));
    EXPECT_THAT(Lines(again.errors), IsEmpty()) << path;
    EXPECT_TRUE(again.job == parsed->job) << path;
  }
}

// full.json is written by hand with a value for every supported field: no name or value may change on the way.
TEST(ManifestCorpusTest, TheNormalisedFormOfTheFullManifestIsTheManifest) {
  const std::string text = ReadText(std::filesystem::path(kCorpus) / "valid/full.json");
  const ParsedManifest parsed = ParseManifest(text);
  ASSERT_THAT(Lines(parsed.errors), IsEmpty());
  EXPECT_EQ(nlohmann::json::parse(ToJson(parsed.job)), nlohmann::json::parse(text));
}

TEST(ManifestCorpusTest, ValuesArriveInTheRightFields) {
  const ParsedManifest lenet = ParseManifest(ReadText(std::filesystem::path(kCorpus) / "valid/lenet.yaml"));
  ASSERT_THAT(Lines(lenet.errors), IsEmpty());
  TrainingJob expected;
  expected.metadata.name = "lenet";
  expected.spec.parameter_server.emplace();
  expected.spec.worker.replicas = 3;
  expected.spec.model.name = "LeNet";
  expected.spec.dataset = {.format = "IDX", .path = "/usr/share/datasets/fashion-mnist"};
  expected.spec.training.epochs = 10;
  expected.spec.training.batch_size = 256;
  expected.spec.update.optimizer.learning_rate = 0.1;
  EXPECT_TRUE(lenet.job == expected) << ToJson(lenet.job);

  const ParsedManifest full = ParseManifest(ReadText(std::filesystem::path(kCorpus) / "valid/full.json"));
  const FailurePolicy& policy = full.job.spec.failure_policy;
  ASSERT_EQ(policy.rules.size(), 5u);
  EXPECT_EQ(policy.max_restarts, 50);
  EXPECT_EQ(policy.backoff, (Backoff{.initial_seconds = 2, .max_seconds = 60}));
  EXPECT_FALSE(policy.rules[0].counts_towards_limit);
  EXPECT_THAT(policy.rules[0].on_pod_conditions, ElementsAre(PodConditionRule{"DisruptionTarget", "True"}));
  EXPECT_THAT(policy.rules[1].roles, ElementsAre(Role::kWorker));
  EXPECT_EQ(policy.rules[2].action, RestartAction::kFailJob);
  EXPECT_EQ(policy.rules[2].on_exit_codes, (ExitCodeRule{.in = true, .values = {1, 2, 126, 127}}));
  EXPECT_FALSE(policy.rules[3].on_exit_codes->in);
  EXPECT_TRUE(full.job.spec.suspend);
  EXPECT_EQ(full.job.spec.active_deadline_seconds, 86400);
  EXPECT_EQ(full.job.spec.training.device, Device::kCpu);
  EXPECT_EQ(full.job.spec.training.precision, Precision::kBf16);
}

TEST(ManifestPropertyTest, EveryValidJobReadsBackTheSame) {
  for (std::uint64_t seed = 0; seed < Seeds(2000); ++seed) {
    std::mt19937_64 random(seed);
    const TrainingJob job = testing::RandomJob(random);
    const std::string text = ToJson(job);
    const ParsedManifest parsed = ParseManifest(text);
    ASSERT_THAT(Lines(parsed.errors), IsEmpty()) << "seed " << seed << "\n" << text;
    ASSERT_TRUE(parsed.job == job) << "seed " << seed << "\n" << text;
    ASSERT_EQ(ToJson(parsed.job), text) << "seed " << seed;
  }
}

// JSON is YAML: put behind a line that is no JSON, the same text goes through the other parser.
TEST(ManifestPropertyTest, YamlAndJsonAgree) {
  for (std::uint64_t seed = 0; seed < Seeds(500); ++seed) {
    std::mt19937_64 random(seed);
    const TrainingJob job = testing::RandomJob(random);
    const std::string text = "---\n" + ToJson(job);
    const ParsedManifest parsed = ParseManifest(text);
    ASSERT_THAT(Lines(parsed.errors), IsEmpty()) << "seed " << seed << "\n" << text;
    ASSERT_TRUE(parsed.job == job) << "seed " << seed << "\n" << text;
  }
}

TEST(ManifestPropertyTest, EveryStatusReadsBackTheSame) {
  for (std::uint64_t seed = 0; seed < Seeds(2000); ++seed) {
    std::mt19937_64 random(seed);
    TrainingJobStatus status;
    testing::RandomFill fill(random);
    schema::Fields(fill, status);
    const auto read = StatusFromJson(StatusToJson(status));
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << "\n" << StatusToJson(status);
    ASSERT_TRUE(*read == status) << "seed " << seed << "\n" << StatusToJson(status);
  }
}

TEST(ManifestPropertyTest, EveryStatusReadsBackTheSameWithTimesAsTheApiServerWantsThem) {
  for (std::uint64_t seed = 0; seed < Seeds(2000); ++seed) {
    std::mt19937_64 random(seed);
    const TrainingJobStatus status = testing::RandomStatus(random);
    const std::string text = StatusToJson(status, TimeFormat::kRfc3339);
    const auto read = StatusFromJson(text, TimeFormat::kRfc3339);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << "\n" << text;
    ASSERT_TRUE(*read == status) << "seed " << seed << "\n" << text;
    ASSERT_EQ(StatusToJson(*read, TimeFormat::kRfc3339), text) << "seed " << seed;
  }
}

TEST(ManifestPropertyTest, NoMutationCrashesOrGoesWithoutAMessage) {
  std::vector<std::string> texts;
  for (const char* kind : {"valid", "invalid"}) {
    for (const auto& path : Manifests(kind)) texts.push_back(ReadText(path));
  }
  static const std::string kTokens[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ":",
                                        ": ",
                                        ",",
                                        "\n",
                                        "\n  ",
                                        "- ",
                                        "? ",
                                        "&a ",
                                        "*a",
                                        "!!str ",
                                        "|",
                                        ">",
                                        "\"",
                                        "'",
                                        "#",
                                        "%",
                                        "@",
                                        "---\n",
                                        "...\n",
                                        "\\",
                                        "\t",
                                        "\r",
                                        "~",
                                        "null",
                                        "9999999999",
                                        "\x04",
                                        "\xff",
                                        "\xEF\xBB\xBF",
                                        "%YAML 1.2\n---\n",
                                        "<<: ",
                                        "\\u0000",
                                        "\\ud800",
                                        "1e999",
                                        "-"};
  const auto token = [&](std::size_t i) -> std::string {
    return i < std::size(kTokens) ? kTokens[i] : std::string(1, '\0');
  };
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < Seeds(10000); ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    std::string text = texts[below(texts.size())];
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::size_t at = below(text.size() + 1);
      const std::size_t length = std::min(below(20), text.size() - at);
      switch (below(5)) {
        case 0:
          text.insert(at, token(below(std::size(kTokens) + 1)));
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(below(256));
          break;
        case 3:
          text.insert(below(text.size() + 1), text.substr(at, length));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    const ParsedManifest parsed = ParseManifest(text);
    for (const FieldError& error : parsed.errors) {
      ASSERT_FALSE(error.message.empty()) << "seed " << seed << "\n" << text;
      ASSERT_EQ(std::count(error.message.begin(), error.message.end(), '\n'), 0) << "seed " << seed << error.message;
    }
    if (!parsed.errors.empty()) continue;
    ++accepted;
    const ParsedManifest again = ParseManifest(ToJson(parsed.job));
    ASSERT_THAT(Lines(again.errors), IsEmpty()) << "seed " << seed << "\n" << text;
    ASSERT_TRUE(again.job == parsed.job) << "seed " << seed << "\n" << text;
  }
  EXPECT_GT(accepted, 0u) << "the mutations never leave a manifest valid";
}

std::string Minimal() { return ReadText(std::filesystem::path(kCorpus) / "valid/minimal.yaml"); }

TEST(ManifestTest, LimitsOfTheDocumentHold) {
  const std::string padding(kMaxManifestBytes, '#');
  EXPECT_THAT(Errors(padding), ElementsAre("the document is empty"));
  EXPECT_THAT(Errors(padding + "#"), ElementsAre("must be at most 1048576 bytes, got 1048577"));

  // The map of the document is the first level, that of the metadata the second, the field the third.
  for (const std::size_t lists : {61u, 62u, 63u}) {
    const std::string nested = std::string(lists, '[') + std::string(lists, ']');
    const std::string yaml = "metadata: {managedFields: " + nested + "}";
    const std::string json = "{\"metadata\": {\"managedFields\": " + nested + "}}";
    for (const std::string& text : {yaml, json}) {
      const auto errors = Errors(text);
      EXPECT_EQ(errors.front() == "the document is nested deeper than 64 levels", lists + 2 > kMaxManifestDepth)
          << lists << " " << errors.front();
    }
  }
}

TEST(ManifestTest, AMegabyteOfMistakesIsAnsweredWithAHundred) {
  std::string text = Minimal();
  for (int i = 0; text.size() < kMaxManifestBytes - 100; ++i) text += "x" + std::to_string(i) + ": 1\n";
  const auto unknown = Errors(text);
  ASSERT_EQ(unknown.size(), 101u);
  EXPECT_EQ(unknown.back(), "too many errors");

  text = Minimal();
  while (text.size() < kMaxManifestBytes - 100) text += "a:\n";
  EXPECT_EQ(Errors(text).size(), 101u);

  text = Minimal();
  while (text.size() < kMaxManifestBytes - 100) text += "[{";
  EXPECT_EQ(Errors(text).size(), 1u);
}

TEST(ManifestTest, OverridesComeBeforeValidation) {
  const std::vector<std::pair<std::string, std::string>> overrides = {
      {"worker.replicas", "7"},
      {"spec.training.epochs", "4"},
      {"metadata.name", "other"},
      {"metadata.labels[\"example.com/team\"]", "shop"},
      {"update.optimizer.learningRate", "0.5"},
      {"parameterServer", "{replicas: 2}"},
      {"failurePolicy.rules", "[{name: oom, onContainerReasons: [OOMKilled], action: FailJob}]"},
      {"failurePolicy.rules[0].action", "Replace"},
      {"training.epochs", "6"}};
  const ParsedManifest parsed = ParseManifest(Minimal(), overrides);
  ASSERT_THAT(Lines(parsed.errors), IsEmpty());
  EXPECT_EQ(parsed.job.spec.worker.replicas, 7);
  EXPECT_EQ(parsed.job.spec.training.epochs, 6) << "the last one counts";
  EXPECT_EQ(parsed.job.metadata.name, "other");
  EXPECT_EQ(parsed.job.metadata.labels.at("example.com/team"), "shop");
  EXPECT_EQ(parsed.job.spec.update.optimizer.learning_rate, 0.5);
  EXPECT_EQ(parsed.job.spec.parameter_server->replicas, 2);
  EXPECT_EQ(parsed.job.spec.failure_policy.rules.at(0).action, RestartAction::kReplace);

  // An override can repair a manifest.
  EXPECT_THAT(
      Errors("apiVersion: training.downpour.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n",
             {{"parameterServer.replicas", "1"}, {"model.name", "MLP"}, {"dataset", "{format: IDX, path: data}"}}),
      IsEmpty());
}

TEST(ManifestTest, OverridesAreCheckedAsTheFileIs) {
  const auto one = [](const std::string& path, const std::string& value) {
    const auto errors = Errors(Minimal(), {{path, value}});
    EXPECT_EQ(errors.size(), 1u) << path;
    return errors.empty() ? std::string() : errors.front();
  };
  EXPECT_EQ(one("worker.replicas", "-1"), "spec.worker.replicas: must be at least 0, got -1");
  EXPECT_EQ(one("worker.replica", "2"), "spec.worker.replica: unknown field; did you mean \"replicas\"?");
  EXPECT_EQ(one("wroker.replicas", "2"), "spec.wroker: unknown field; did you mean \"worker\"?");
  EXPECT_EQ(one("spec.training.epochs", ""), "spec.training.epochs: needs a value");
  EXPECT_EQ(one("training.epochs", "~"), "spec.training.epochs: must be an integer, got null");
  EXPECT_EQ(one("training.epochs", "*a"),
            "spec.training.epochs: not valid YAML: line 1, column 1: the referenced anchor is not defined");
  EXPECT_EQ(one("model.name.x", "1"), "spec.model.name: is not a map, so spec.model.name.x cannot be set");
  EXPECT_EQ(one("dataset[0]", "1"), "spec.dataset: is not a list, so spec.dataset[0] cannot be set");
  for (const char* path :
       {"", ".", "a..b", "a.", ".a", "a[", "a[x]", "a[-1]", "a[0]b", "a[\"b", "a[99999999999999999999]"}) {
    EXPECT_THAT(one(path, "1"), HasSubstr("is not a path")) << path;
  }
}

TEST(ManifestTest, PlainScalarsMeanOneThingToEveryReader) {
  const auto kind = [](const std::string& text) { return ParseYamlValue(text, 0).root.kind; };
  for (const char* text : {"0", "-1", "12", "1.5", ".5", "5.", "1e-3", "-2.5E+10", "0.0"}) {
    EXPECT_EQ(kind(text), DocumentNode::Kind::kNumber) << text;
  }
  for (const char* text : {"true", "false", "True", "FALSE"})
    EXPECT_EQ(kind(text), DocumentNode::Kind::kBoolean) << text;
  for (const char* text : {"~", "null", "Null", "NULL"}) EXPECT_EQ(kind(text), DocumentNode::Kind::kNull) << text;
  for (const char* text :
       {"yes", "No", "ON", "y", "010", "-007", "0x1F", "0o17", "0b1", "1_000", "+5", ".inf", "-.Inf", ".NaN", "00.5"}) {
    EXPECT_EQ(kind(text), DocumentNode::Kind::kAmbiguous) << text;
  }
  for (const char* text : {"'3'", "\"true\"", "3 workers", "1.2.3", "2024-01-01", "10.0.0.1", "e5", "1e", "-a", "nan",
                           "yes!", "0xyz", "a_b"}) {
    EXPECT_EQ(kind(text), DocumentNode::Kind::kString) << text;
  }
}

TEST(ManifestTest, FilesThatCannotBeReadAreNamed) {
  const auto missing = ReadManifest("tests/testdata/manifests/no-such-file.yaml");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(),
            "cannot read tests/testdata/manifests/no-such-file.yaml: No such file or directory");
  const auto directory = ReadManifest(kCorpus);
  EXPECT_FALSE(directory.ok());
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr("Is a directory"));
}

TEST(StatusTest, IsReadStrictlyButNewerFieldsArePassedOver) {
  EXPECT_TRUE(StatusFromJson(R"({"phase": "Running", "fieldOfANewerVersion": {"a": [1]}})").ok());
  for (const char* text :
       {"", "[]", "{", R"({"phase": 3})", R"({"restarts": {"total": -1}})",
        R"({"conditions": [{"type": "Ready", "status": true}]})", R"({"phase": "a", "phase": "b"})"}) {
    EXPECT_EQ(StatusFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(StatusTest, HasTheShapeThatTheColumnsOfTheResourceReadFrom) {
  TrainingJobStatus status;
  status.phase = "Running";
  status.restarts_total = 4;
  status.worker.ready = 3;
  status.conditions.emplace_back().status = true;
  const auto json = nlohmann::json::parse(StatusToJson(status));
  EXPECT_EQ(json["phase"], "Running");
  EXPECT_EQ(json["restarts"]["total"], 4);
  EXPECT_EQ(json["worker"]["ready"], 3);
  EXPECT_EQ(json["conditions"][0]["status"], "True");
  EXPECT_EQ(json["worker"]["failed"], 0);
  // What is not there is not written, and what is written each time is to be short.
  for (const char* name : {"completionTime", "failures", "incarnations"}) EXPECT_FALSE(json.contains(name)) << name;
}

TEST(StatusTest, WritesTimesAsTheApiServerWantsThem) {
  TrainingJobStatus status;
  status.start_time = 1767323045.123456;
  status.conditions.emplace_back().last_transition_time = 0;
  status.failures.emplace_back().time = 1767323045.9999996;
  status.recovery.emplace().last_start_time = -0.25;
  status.progress.emplace().last_update_time = 1e300;
  const auto json = nlohmann::json::parse(StatusToJson(status, TimeFormat::kRfc3339));
  EXPECT_EQ(json["startTime"], "2026-01-02T03:04:05.123456Z");
  EXPECT_EQ(json["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(json["failures"][0]["time"], "2026-01-02T03:04:06.000000Z");
  EXPECT_EQ(json["recovery"]["lastStartTime"], "1969-12-31T23:59:59.750000Z");
  EXPECT_EQ(json["progress"]["lastUpdateTime"], "9999-12-31T23:59:59.000000Z");
  EXPECT_FALSE(json.contains("completionTime"));
}

TEST(StatusTest, ReadsTimesAsTheApiServerGivesThem) {
  const auto read = [](const std::string& time) {
    return StatusFromJson("{\"startTime\": " + time + "}", TimeFormat::kRfc3339);
  };
  EXPECT_EQ(read("\"2026-01-02T03:04:05.123456Z\"")->start_time, 1767323045.123456);
  EXPECT_EQ(read("\"2026-01-02T03:04:05Z\"")->start_time, 1767323045);
  EXPECT_EQ(read("\"2026-01-02T04:34:05.5+01:30\"")->start_time, 1767323045.5);
  for (const char* text : {"\"\"", "\"infinite-future\"", "\"2026-01-02\"", "\" 2026-01-02T03:04:05Z\"", "1767323045.5",
                           "\"2026-13-02T03:04:05Z\"", "null"}) {
    EXPECT_THAT(std::string(read(text).status().message()), HasSubstr("startTime: must be a time")) << text;
  }
  EXPECT_FALSE(StatusFromJson(R"({"startTime": "2026-01-02T03:04:05Z"})").ok());
}

TEST(TemplateTest, IsKeptAsItIsButSorted) {
  const auto job = [](const std::string& text) {
    const ParsedManifest parsed = ParseManifest(Minimal(), {{"worker.template", text}});
    EXPECT_THAT(Lines(parsed.errors), IsEmpty()) << text;
    return parsed.job;
  };
  EXPECT_EQ(ParseManifest(Minimal()).job.spec.worker.pod_template, "");
  EXPECT_EQ(job("{}").spec.worker.pod_template, "{}");
  const TrainingJob some = job("{spec: {priority: 5, nodeSelector: {b: '1', a: x}}, metadata: {labels: {t: '7'}}}");
  EXPECT_EQ(some.spec.worker.pod_template,
            R"({"metadata":{"labels":{"t":"7"}},"spec":{"nodeSelector":{"a":"x","b":"1"},"priority":5}})");
  EXPECT_TRUE(some == job("{metadata: {labels: {t: '7'}}, spec: {nodeSelector: {a: x, b: '1'}, priority: 5}}"));
  EXPECT_FALSE(some == job("{metadata: {labels: {t: '7'}}, spec: {nodeSelector: {a: x, b: '2'}, priority: 5}}"));
  EXPECT_FALSE(nlohmann::json::parse(ToJson(ParseManifest(Minimal()).job))["spec"]["worker"].contains("template"));
  EXPECT_EQ(nlohmann::json::parse(ToJson(some))["spec"]["worker"]["template"]["spec"]["priority"], 5);
}

// Its metadata alone is not passed on, so that a field with a wrong name would be lost.
TEST(TemplateTest, MetadataHasLabelsAndAnnotationsAlone) {
  const auto errors = [](const std::string& text) {
    return Lines(ParseManifest(Minimal(), {{"worker.template", text}}).errors);
  };
  EXPECT_THAT(errors("{metadata: {lables: {a: b}}}"),
              ElementsAre("spec.worker.template.metadata.lables: unknown field; did you mean \"labels\"?"));
  EXPECT_THAT(errors("{metadata: {finalizers: [a/b]}}"),
              ElementsAre("spec.worker.template.metadata.finalizers: unknown field"));
  EXPECT_THAT(errors("{metadata: {creationTimestamp: null}, more: 1, spec: {more: 1}}"), IsEmpty());
}

// A path is long there, and must not be kept for each of the many nodes.
TEST(TemplateTest, NamesThePlaceDeepDownInAMegabyte) {
  std::string text = Minimal() + "  coordinator:\n    template: ";
  for (int i = 0; i < 55; ++i) text += "{" + std::string(64, 'k') + ": ";
  text += "[";
  while (text.size() < kMaxManifestBytes - 100) text += "0,";
  text += "yes]" + std::string(55, '}') + "\n";
  const auto errors = Errors(text);
  ASSERT_EQ(errors.size(), 1u) << errors.front();
  EXPECT_THAT(errors.front(), HasSubstr("kkkk[52"));
}

TEST(RoleTest, HasTheNameThatProcessesAreCalledBy) {
  EXPECT_EQ(ToString(Role::kCoordinator), "coordinator");
  EXPECT_EQ(ToString(Role::kParameterServer), "ps");
  EXPECT_EQ(ToString(Role::kWorker), "worker");
}

// Collects the path of every field that the parser accepts, and what the reference must say of it.
class FieldNames {
 public:
  struct Entry {
    std::string path;
    bool unsupported = false;
    std::vector<std::string> values;  // of an enumeration
  };

  template <class Value, class Rule>
  void Field(std::string_view name, Value& value, const Rule& rule,
             schema::Presence presence = schema::Presence::kOptional) {
    const std::string parent = path_;
    path_ = JoinPath(path_, name);
    entries.push_back({path_, presence == schema::Presence::kUnsupported, {}});
    Descend(value, rule);
    path_ = parent;
  }
  void Dropped(std::string_view name) { entries.push_back({JoinPath(path_, name), false, {}}); }

  std::vector<Entry> entries;

 private:
  template <class Value, class Rule>
  void Descend(Value&, const Rule&) {}
  template <class Value>
  void Descend(Value& value, const schema::Object&) {
    schema::Fields(*this, value);
  }
  template <class Value>
  void Descend(std::optional<Value>& value, const schema::Object&) {
    schema::Fields(*this, value.emplace());
  }
  template <class Value, class Choice>
  void Descend(Value&, const schema::Choice<Choice>& rule) {
    for (const auto& name : rule.names) entries.back().values.emplace_back(name.name);
  }
  template <class Value, class Item>
  void Descend(std::vector<Value>&, const schema::ListOf<Item>& rule) {
    path_ += "[]";
    Value item{};
    Descend(item, rule.item);
  }

  std::string path_;
};

TEST(ReferenceTest, HasARowForEveryFieldAndEveryValue) {
  const std::string reference = ReadText("docs/manifest.md");
  std::map<std::string, std::string> rows;
  std::istringstream lines(reference);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3);
    ASSERT_TRUE(rows.emplace(line.substr(3, end - 3), line).second) << "two rows: " << line;
  }
  FieldNames names;
  TrainingJob job;
  schema::Fields(names, job);
  EXPECT_GT(names.entries.size(), 80u);
  std::set<std::string> known;
  for (const auto& entry : names.entries) {
    known.insert(entry.path);
    ASSERT_TRUE(rows.contains(entry.path)) << "docs/manifest.md has no row for " << entry.path;
    const std::string& row = rows[entry.path];
    EXPECT_TRUE(!entry.unsupported || row.find("Not yet") != std::string::npos) << row;
    for (const std::string& value : entry.values) EXPECT_THAT(row, HasSubstr("`" + value + "`"));
  }
  for (const auto& [path, row] : rows) EXPECT_TRUE(known.contains(path)) << "no such field: " << row;
}

// The defaults that the reference states are those of a manifest that states none.
TEST(ReferenceTest, StatesTheDefaults) {
  const auto defaults = nlohmann::json::parse(ToJson(ParseManifest(Minimal()).job));
  std::istringstream lines(ReadText("docs/manifest.md"));
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `spec.") && !line.starts_with("| `metadata.")) continue;
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, '|');) {
      const std::size_t begin = std::min(cell.find_first_not_of(" `"), cell.size());
      cells.push_back(cell.substr(begin, cell.find_last_not_of(" `") + 1 - begin));
    }
    ASSERT_EQ(cells.size(), 5u) << line;
    std::string pointer = "/" + cells[1];
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    if (cells[2].empty() || cells[2].starts_with("required") || pointer.find("[]") != std::string::npos) continue;
    const nlohmann::json::json_pointer at(pointer);
    if (!defaults.contains(at)) continue;
    const auto& value = defaults[at];
    EXPECT_EQ(value.is_string() && !value.get<std::string>().empty() ? value.get<std::string>() : value.dump(),
              cells[2])
        << line;
    ++checked;
  }
  EXPECT_GE(checked, 30);
}

}  // namespace
}  // namespace downpour::api
