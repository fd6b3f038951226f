#include "operator/api/manifest.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/testing/corpus.h"
#include "operator/api/testing/manifest_errors.h"
#include "operator/api/text_checks.h"

namespace downpour::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using testing::Errors;
using testing::kCorpus;
using testing::Lines;
using testing::Minimal;

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
  for (int i = 0; text.size() < kMaxManifestBytes - 100; ++i) absl::StrAppend(&text, "x", i, ": 1\n");
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

// Whatever says which strategy it is.
TEST(ManifestTest, AModeThatIsNotThereIsThatOfTheStrategy) {
  EXPECT_EQ(ParseManifest(Minimal()).job.spec.update.mode, UpdateMode::kAsync);
  const std::vector<std::pair<std::string, std::string>> all_reduce = {{"strategy", "AllReduce"},
                                                                       {"parameterServer", "null"}};
  for (const char* update : {"null", "{}", "{mode: null}", "{mode: Synchronous}", "{updatesPerStep: 4}"}) {
    auto overrides = all_reduce;
    overrides.emplace_back("update", update);
    const ParsedManifest parsed = ParseManifest(Minimal(), overrides);
    EXPECT_THAT(Lines(parsed.errors), IsEmpty()) << update;
    EXPECT_EQ(parsed.job.spec.update.mode, UpdateMode::kSynchronous) << update;
    const ParsedManifest stored = ParseStored(ToJson(parsed.job));
    EXPECT_THAT(Lines(stored.errors), IsEmpty()) << update;
    EXPECT_TRUE(stored.job == parsed.job) << update;
  }
}

TEST(ManifestTest, ANameOrItsBeginningIsNeeded) {
  const auto errors = [](const std::string& name) { return Errors(Minimal(), {{"metadata", name}}); };
  EXPECT_THAT(errors("{generateName: lenet-}"), IsEmpty());
  EXPECT_THAT(errors("{generateName: lenet}"), IsEmpty());
  EXPECT_THAT(errors("{name: lenet, generateName: lenet-}"), IsEmpty());
  EXPECT_THAT(errors("{}"), ElementsAre("metadata.name: is required, or generateName"));
  EXPECT_THAT(errors("{generateName: ''}"), ElementsAre(HasSubstr("metadata.generateName: must be the beginning of")));
  EXPECT_THAT(errors("{generateName: -a}"), ElementsAre(HasSubstr("metadata.generateName: must be the beginning of")));
  EXPECT_THAT(errors("{generateName: " + std::string(36, 'a') + "}"),
              ElementsAre(HasSubstr("metadata.generateName: must be at most 35 characters")));

  Metadata metadata;
  metadata.generate_name = std::string(35, 'a');
  const std::string name = MakeName(metadata);
  EXPECT_TRUE(schema::IsJobName(name).empty()) << name;
  EXPECT_TRUE(name.starts_with(metadata.generate_name));
  EXPECT_NE(MakeName(metadata), name);
  metadata.name = "own";
  EXPECT_EQ(MakeName(metadata), "own");
}

TEST(ManifestTest, APathOfBytesThatAreNoTextIsRefused) {
  const ParsedManifest parsed = ParseManifest(Minimal(), {{"dataset.path", "data"}}, "/tmp/\xff");
  EXPECT_THAT(parsed.errors, IsEmpty()) << "an override is not taken from the folder";
  const ParsedManifest taken = ParseManifest(
      "apiVersion: training.downpour.dev/v1alpha1\nkind: TrainingJob\n"
      "metadata: {name: a}\nspec: {parameterServer: {}, model: {name: MLP},\n"
      "  dataset: {format: IDX, path: data}, output: {directory: out}}\n",
      {}, "/tmp/\xff");
  ASSERT_EQ(taken.errors.size(), 2u);
  EXPECT_EQ(taken.errors[0].ToString(),
            "spec.dataset.path: must be valid UTF-8, the folder it is in included, got \"/tmp/\\xff/data\"");
  EXPECT_TRUE(taken.errors[1].ToString().starts_with("spec.output.directory: must be valid UTF-8"));
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
  EXPECT_EQ(one("model", "~"), "spec.model: is required");
  EXPECT_EQ(one("training.epochs", "*a"), "spec.training.epochs: the anchor of the alias *a is missing");
  EXPECT_EQ(one("model.name.x", "1"), "spec.model.name: is not a map, so spec.model.name.x cannot be set");
  EXPECT_EQ(one("dataset[0]", "1"), "spec.dataset: is not a list, so spec.dataset[0] cannot be set");
  for (const char* path :
       {"", ".", "a..b", "a.", ".a", "a[", "a[x]", "a[-1]", "a[0]b", "a[\"b", "a[99999999999999999999]"}) {
    EXPECT_THAT(one(path, "1"), HasSubstr("is not a path")) << path;
  }
}

// What kubectl's reader makes of them.
TEST(ManifestTest, PlainScalarsAreThoseOfYaml11) {
  const auto node = [](const std::string& text) { return ParseYamlValue(text, 0).root; };
  const auto expect = [&](const std::string& text, DocumentNode::Kind kind, const std::string& value) {
    EXPECT_EQ(node(text).kind, kind) << text;
    EXPECT_EQ(node(text).value, value) << text;
  };
  using Kind = DocumentNode::Kind;
  const std::pair<const char*, const char*> numbers[] = {
      {"0", "0"},        {"-1", "-1"},   {"12", "12"},
      {"1.5", "1.5"},    {".5", "0.5"},  {"5.", "5"},
      {"1e-3", "0.001"}, {"1e1", "10"},  {"-2.5E+10", "-25000000000"},
      {"0.0", "0"},      {"010", "8"},   {"-007", "-7"},
      {"0x1F", "31"},    {"0o17", "15"}, {"0b1", "1"},
      {"1_000", "1000"}, {"+5", "5"},    {"00.5", "0.5"},
      {"08", "8"}};
  for (const auto& [text, value] : numbers) expect(text, Kind::kNumber, value);
  for (const char* text : {"true", "True", "TRUE", "yes", "Yes", "YES", "y", "on", "ON"}) {
    expect(text, Kind::kBoolean, "true");
  }
  for (const char* text : {"false", "False", "FALSE", "no", "No", "NO", "n", "off", "Off"}) {
    expect(text, Kind::kBoolean, "false");
  }
  for (const char* text : {"~", "null", "Null", "NULL"}) EXPECT_EQ(node(text).kind, Kind::kNull) << text;
  for (const char* text : {".inf", "-.Inf", ".NaN"}) {
    EXPECT_THAT(ParseYamlValue(text, 0).errors, ::testing::Not(::testing::IsEmpty())) << text;
  }
  for (const char* text : {"'3'", "\"true\"", "3 workers", "1.2.3", "2024-01-01", "10.0.0.1", "e5", "1e", "-a", "nan",
                           "yes!", "0xyz", "a_b", "1:30", "yES"}) {
    EXPECT_EQ(node(text).kind, Kind::kString) << text;
  }
}

TEST(ManifestTest, RelativePathsAreTakenFromTheFolderOfTheManifest) {
  const std::string text =
      "apiVersion: training.downpour.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n"
      "  parameterServer: {replicas: 1}\n  model: {name: LeNet}\n"
      "  dataset: {format: IDX, path: ../data}\n  output: {directory: out}\n";
  const ParsedManifest read = ParseManifest(text, {}, "/jobs/one");
  EXPECT_THAT(Lines(read.errors), IsEmpty());
  EXPECT_TRUE(read.has_relative_path);
  EXPECT_EQ(read.job.spec.dataset.path, "/jobs/data");
  EXPECT_EQ(read.job.spec.output.directory, "/jobs/one/out");
  const ParsedManifest set =
      ParseManifest(text, {{"dataset.path", "here"}, {"output.directory", "/there"}}, "/jobs/one");
  EXPECT_EQ(set.job.spec.dataset.path, "here") << "of the working directory, as all that is said on the command line";
  EXPECT_EQ(set.job.spec.output.directory, "/there");
  EXPECT_EQ(ParseManifest(text).job.spec.dataset.path, "../data") << "of no file, as on a cluster";
}

TEST(ManifestTest, RelativePathsOfDataAreTakenFromTheFolderOfTheManifest) {
  const std::string text =
      "apiVersion: training.downpour.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n"
      "  parameterServer: {replicas: 1}\n  model: {name: LeNet}\n"
      "  dataset: {format: CSV, path: train.csv, testPath: s3://bucket/test.csv, cache: {directory: cache}}\n";
  const DatasetSpec dataset = ParseManifest(text, {}, "/jobs/one").job.spec.dataset;
  EXPECT_EQ(dataset.path, "/jobs/one/train.csv");
  EXPECT_EQ(dataset.test_path, "s3://bucket/test.csv");
  EXPECT_EQ(dataset.cache->directory, "/jobs/one/cache");
}

TEST(ManifestTest, RelativeCheckpointsAreTakenFromTheFolderOfTheManifestAndRefusedOnACluster) {
  const std::string text = Minimal() + "  checkpoint: {uri: ckpt, resumeFrom: {uri: ../before}}\n";
  const ParsedManifest read = ParseManifest(text, {}, "/jobs/one");
  EXPECT_THAT(Lines(read.errors), IsEmpty());
  EXPECT_EQ(read.job.spec.checkpoint->uri, "/jobs/one/ckpt");
  EXPECT_EQ(read.job.spec.checkpoint->resume_from.uri, "/jobs/before");
  EXPECT_THAT(Lines(ParseManifest(text).errors), IsEmpty());
  EXPECT_THAT(Lines(ParseStored(text).errors),
              ElementsAre("spec.checkpoint.uri: must be an absolute path or s3://BUCKET/PREFIX on a cluster, got "
                          "\"ckpt\"",
                          "spec.checkpoint.resumeFrom.uri: must be an absolute path or s3://BUCKET/PREFIX on a "
                          "cluster, got \"../before\""));
  const std::string remote = Minimal() + "  checkpoint: {uri: \"s3://bucket/a\"}\n";
  EXPECT_EQ(ParseManifest(remote, {}, "/jobs/one").job.spec.checkpoint->uri, "s3://bucket/a");
  EXPECT_THAT(Lines(ParseStored(remote).errors), IsEmpty());
}

TEST(ManifestTest, ARelativeTensorBoardDirectoryIsLikeThatOfCheckpoints) {
  const std::string text = Minimal() + "  tracking: {tensorboard: {directory: board}}\n";
  EXPECT_EQ(ParseManifest(text, {}, "/jobs/one").job.spec.tracking->tensorboard->directory, "/jobs/one/board");
  EXPECT_THAT(Lines(ParseStored(text).errors),
              ElementsAre("spec.tracking.tensorboard.directory: must be an absolute path on a cluster, got \"board\""));
  const std::string remote = Minimal() + "  tracking: {tensorboard: {directory: \"s3://bucket/a\"}}\n";
  EXPECT_THAT(Lines(ParseManifest(remote, {}, "/jobs/one").errors),
              ElementsAre("spec.tracking.tensorboard.directory: must be a directory, and no URI, got "
                          "\"s3://bucket/a\""));
}

TEST(ManifestTest, OneJobIsTakenAndTheRestIsNamed) {
  const std::string other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n---\n";
  const ParsedManifest read = ParseManifest(other + Minimal());
  EXPECT_THAT(Lines(read.errors), IsEmpty());
  EXPECT_THAT(read.notes, ElementsAre("document 1, ConfigMap \"settings\", is not read"));
  EXPECT_THAT(Errors(other + other),
              ElementsAre("must hold a TrainingJob, got ConfigMap \"settings\", ConfigMap \"settings\""));
}

// Neither is read again, nor its mistakes copied, for each of its documents: that would take hours, and all memory.
TEST(ManifestTest, AMegabyteOfDocumentsIsReadOnce) {
  std::string values;
  while (values.size() < kMaxManifestBytes - 100) values += R"({"a":1})";
  EXPECT_THAT(Errors(values), ElementsAre("document 1 has no kind or no apiVersion"));

  std::string list = R"({"apiVersion":"v1","kind":"List","items":[{"a":1})";
  while (list.size() < kMaxManifestBytes - 100) list += R"(,{"a":1,"a":2})";
  EXPECT_THAT(Errors(list + "]}"), ElementsAre("document 1 has no kind or no apiVersion"));
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
  for (const char* name : {"completionTime", "failures", "incarnations", "reason"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
  EXPECT_FALSE(json["coordinator"].contains("selector"));
  status.progress.emplace();
  status.worker.selector = "role=worker";
  const auto later = nlohmann::json::parse(StatusToJson(status));
  for (const char* name : {"samplesPerSecond", "loss", "testAccuracy", "testMetrics"}) {
    EXPECT_FALSE(later["progress"].contains(name)) << name;
  }
  status.progress->test_metrics = {{"Top5Accuracy", "0.9911"}, {"Accuracy", "0.8712"}};
  EXPECT_EQ(nlohmann::json::parse(StatusToJson(status))["progress"]["testMetrics"],
            nlohmann::json::parse(R"([{"name": "Top5Accuracy", "value": "0.9911"},
                                      {"name": "Accuracy", "value": "0.8712"}])"));
  EXPECT_EQ(later["worker"]["selector"], "role=worker");
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
                           "\"2026-13-02T03:04:05Z\""}) {
    EXPECT_THAT(std::string(read(text).status().message()), HasSubstr("startTime: must be a time")) << text;
  }
  EXPECT_EQ(read("null")->start_time, std::nullopt) << "null is absent, everywhere";
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
  text += ".inf]" + std::string(55, '}') + "\n";
  const auto errors = Errors(text);
  ASSERT_EQ(errors.size(), 1u) << ::testing::PrintToString(errors);
  EXPECT_THAT(errors.front(), HasSubstr("kkkk[52"));
}

TEST(RoleTest, HasTheNameThatProcessesAreCalledBy) {
  EXPECT_EQ(ToString(Role::kCoordinator), "coordinator");
  EXPECT_EQ(ToString(Role::kParameterServer), "ps");
  EXPECT_EQ(ToString(Role::kWorker), "worker");
}

}  // namespace
}  // namespace downpour::api
