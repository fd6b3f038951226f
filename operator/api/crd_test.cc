#include "operator/api/crd.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
// GCC 12 takes parts of std::regex for uninitialised under sanitizers (GCC bug 105562).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <regex>
#pragma GCC diagnostic pop
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/manifest.h"
#include "operator/api/testing/corpus.h"
#include "operator/api/testing/random_job.h"
#include "tests/support/seeds.h"

namespace downpour::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

using testing::kCorpus;
using testing::Manifests;
using testing::ReadText;

// What a plain reader of YAML makes of it.
Json ToJsonTree(const DocumentNode& node) {
  using Kind = DocumentNode::Kind;
  switch (node.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBoolean:
      return node.text.starts_with('t') || node.text.starts_with('T');
    case Kind::kNumber:
      return Json::parse(node.text, nullptr, false);
    case Kind::kString:
      return node.text;
    case Kind::kList: {
      Json list = Json::array();
      for (const DocumentNode& item : node.items) list.push_back(ToJsonTree(item));
      return list;
    }
    case Kind::kMap: {
      Json map = Json::object();
      for (const DocumentNode& item : node.items) map[item.key] = ToJsonTree(item);
      return map;
    }
  }
  return nullptr;
}

Json Definition() { return Json::parse(CustomResourceDefinitionJson()); }
Json Schema() { return Definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]; }

TEST(CrdTest, TheFilesAreThoseThatTheProgramPrints) {
  for (const char* path : {"charts/downpour/crds/training.downpour.dev_trainingjobs.yaml", "deploy/crd.yaml"}) {
    EXPECT_TRUE(ReadText(path) == CustomResourceDefinitionYaml())
        << path << " is not up to date: build/release/bin/downpour-crd > " << path;
  }
}

TEST(CrdTest, EveryFieldIsDescribedAndEveryRowOfTheTablesIsUsed) {
  EXPECT_THAT(CustomResourceDefinitionProblems(), IsEmpty());
}

TEST(CrdTest, TheYamlIsTheJson) {
  const Document document = ParseDocument(CustomResourceDefinitionYaml());
  ASSERT_TRUE(document.readable) << document.errors.front().error.ToString();
  EXPECT_THAT(document.errors, IsEmpty());
  EXPECT_EQ(ToJsonTree(document.root), Definition());
}

// The rules of the API server for structural schemas that are easily broken, and what `kubectl explain` needs.
void CheckStructural(const Json& schema, const std::string& path) {
  const bool any = schema.value("x-kubernetes-preserve-unknown-fields", false);
  ASSERT_TRUE(schema.contains("type") || any) << path;
  if (schema.contains("properties")) {
    ASSERT_FALSE(schema.contains("additionalProperties")) << path;
    for (const auto& [name, property] : schema["properties"].items()) {
      const std::string at = JoinPath(path, name);
      const std::string description = property.value("description", "");
      EXPECT_TRUE(description.ends_with('.') || at.starts_with("metadata")) << at << ": " << description;
      for (const auto& required : schema.value("required", Json::array())) {
        EXPECT_FALSE(required == name && property.contains("default")) << at;
      }
      CheckStructural(property, at);
    }
  }
  for (const auto& required : schema.value("required", Json::array())) {
    EXPECT_TRUE(schema["properties"].contains(required.get<std::string>())) << path << " " << required;
  }
  if (schema.value("type", "") == "array") {
    ASSERT_TRUE(schema.contains("items")) << path;
    EXPECT_TRUE(schema.contains("x-kubernetes-list-type")) << path;
    const bool ruled = path.starts_with("spec.") && path.find(".template.") == std::string::npos;
    EXPECT_TRUE(!ruled || schema.contains("maxItems")) << path << ": what a rule costs must have a bound";
    for (const auto& key : schema.value("x-kubernetes-list-map-keys", Json::array())) {
      const auto required = schema["items"].value("required", Json::array());
      EXPECT_NE(std::find(required.begin(), required.end(), key), required.end()) << path << " " << key;
    }
    CheckStructural(schema["items"], path + "[]");
  }
  if (schema.contains("additionalProperties")) CheckStructural(schema["additionalProperties"], path + "[]");
  for (const Json& rule : schema.value("x-kubernetes-validations", Json::array())) {
    EXPECT_FALSE(rule.value("message", "").empty()) << path;
    if (!rule.contains("fieldPath")) continue;
    Json::json_pointer pointer("/properties");
    std::istringstream names(rule["fieldPath"].get<std::string>().substr(1));
    const Json* at = &schema;
    for (std::string name; std::getline(names, name, '.');) {
      ASSERT_TRUE((*at)["properties"].contains(name)) << path << " " << rule;
      at = &(*at)["properties"][name];
    }
  }
}

TEST(CrdTest, TheSchemaIsStructuralAndDescribed) { CheckStructural(Schema(), ""); }

TEST(CrdTest, ColumnsAndTheScaleSubresourceNameFields) {
  const Json version = Definition()["spec"]["versions"][0];
  const Json schema = Schema();
  std::vector<std::string> paths;
  for (const Json& column : version["additionalPrinterColumns"]) paths.push_back(column["jsonPath"]);
  for (const auto& [name, path] : version["subresources"]["scale"].items()) paths.push_back(path);
  EXPECT_GE(paths.size(), 10u);
  for (const std::string& path : paths) {
    if (path.starts_with(".metadata.")) continue;
    const Json* at = &schema;
    std::istringstream names(path.substr(1));
    for (std::string name; std::getline(names, name, '.');) {
      ASSERT_TRUE((*at)["properties"].contains(name)) << path;
      at = &(*at)["properties"][name];
    }
  }
}

// Text patterns are written twice, in C++ and as regular expressions; random texts must not tell them apart.
TEST(CrdTest, PatternsSayWhatTheChecksSay) {
  static const std::string kPieces[] = {"a", "b", "Z",  "0",    "9",    "-", "_", ".",
                                        "/", " ", "\n", "\x01", "\x7f", "A", "~"};
  for (const TextPattern& pattern : TextPatterns()) {
    if (pattern.pattern.empty()) continue;
    const std::regex expression{std::string(pattern.pattern)};
    EXPECT_FALSE(pattern.check(pattern.refused).empty()) << pattern.pattern;
    EXPECT_FALSE(std::regex_search(std::string(pattern.refused), expression)) << pattern.pattern;
    std::size_t good = 0;
    std::size_t bad = 0;
    for (std::uint64_t seed = 0; seed < Seeds(20000); ++seed) {
      std::mt19937_64 random(seed);
      const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
      std::string text;
      // Mostly letters, so that long ones are often right; sometimes one run of a letter up to a limit.
      const std::size_t kinds = seed % 3 == 0 ? std::size(kPieces) : seed % 3 == 1 ? 1 : 9;
      for (std::size_t n = below(6); n > 0; --n) text += kPieces[below(kinds)];
      if (seed % 4 == 0) {
        constexpr std::size_t kLengths[] = {38, 39, 40, 41, 60, 61, 62, 63, 64, 65, 127, 128, 129, 250, 253, 254, 255};
        text.insert(below(text.size() + 1), kLengths[below(std::size(kLengths))], below(8) == 0 ? '.' : 'a');
      }
      const bool empty_is_right = pattern.check("").empty();
      const bool fits =
          (!text.empty() || empty_is_right) && (pattern.max_length == 0 || text.size() <= pattern.max_length);
      const std::size_t slash = std::min(text.find('/'), text.size());
      const bool condition = pattern.check != schema::IsQualifiedName || slash == text.size() || slash <= 253;
      const bool matches = std::regex_search(text, expression) && fits && condition;
      ASSERT_EQ(pattern.check(text).empty(), matches) << "seed " << seed << ": " << text << "\n" << pattern.pattern;
      ++(matches ? good : bad);
    }
    EXPECT_GT(good, Seeds(50)) << pattern.pattern;
    EXPECT_GT(bad, Seeds(100)) << pattern.pattern;
  }
}

// As much of the API server as a schema without its CEL rules tells it: types, bounds, names, unknown fields.
class Checker {
 public:
  std::vector<std::string> problems;

  void Check(const Json& schema, const Json& value, const std::string& path) {
    if (!schema.contains("type")) return;
    const std::string type = schema["type"];
    const auto fail = [&](const std::string& what) { problems.push_back(path + ": " + what); };
    if (type == "object") {
      if (!value.is_object()) return fail("no object");
      for (const auto& name : schema.value("required", Json::array())) {
        if (!value.contains(name.get<std::string>())) fail("required " + name.get<std::string>());
      }
      for (const auto& [name, field] : value.items()) {
        const std::string at = JoinPath(path, name);
        if (schema.contains("additionalProperties")) {
          Check(schema["additionalProperties"], field, at);
        } else if (schema.contains("properties") && schema["properties"].contains(name)) {
          Check(schema["properties"][name], field, at);
        } else if (!schema.value("x-kubernetes-preserve-unknown-fields", false) && path != "metadata") {
          problems.push_back(at + ": unknown");
        }
      }
    } else if (type == "array") {
      if (!value.is_array()) return fail("no array");
      if (value.size() < schema.value("minItems", std::size_t{0})) fail("too short");
      if (value.size() > schema.value("maxItems", schema::kUnlimited)) fail("too long");
      std::set<Json> seen;
      for (std::size_t i = 0; i < value.size(); ++i) {
        Check(schema["items"], value[i], JoinPath(path, i));
        Json key = value[i];
        if (schema["x-kubernetes-list-type"] == "map") {
          key = Json::array();
          for (const auto& name : schema["x-kubernetes-list-map-keys"]) {
            key.push_back(value[i].is_object() ? value[i].value(name.get<std::string>(), Json()) : Json());
          }
        }
        if (schema["x-kubernetes-list-type"] != "atomic" && !seen.insert(key).second) fail("twice");
      }
    } else if (type == "integer" || type == "number") {
      if (type == "integer" ? !value.is_number_integer() : !value.is_number()) return fail("no " + type);
      const bool exclusive = schema.value("exclusiveMinimum", false);
      if (schema.contains("minimum") && (exclusive ? value <= schema["minimum"] : value < schema["minimum"])) {
        fail("too small");
      }
      if (schema.contains("maximum") && value > schema["maximum"]) fail("too large");
    } else if (type == "boolean") {
      if (!value.is_boolean()) fail("no boolean");
    } else if (type == "string") {
      if (!value.is_string()) return fail("no string");
      const auto& text = value.get_ref<const std::string&>();
      const auto characters =
          static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
      if (characters < schema.value("minLength", std::size_t{0})) fail("too short");
      if (characters > schema.value("maxLength", schema::kUnlimited)) fail("too long");
      if (schema.contains("enum") &&
          std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
        fail("not one of the names");
      }
      static const std::regex kTime("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z");
      if (schema.value("format", "") == "date-time" && !std::regex_match(text, kTime)) fail("no time");
    } else {
      fail("type " + type);
    }
  }
};

std::vector<std::string> Problems(const Json& manifest) {
  static const Json schema = Schema();
  Checker checker;
  checker.Check(schema, manifest, "");
  return checker.problems;
}

TEST(CrdTest, EveryValidJobFitsTheSchema) {
  for (const auto& path : Manifests("valid")) {
    const ParsedManifest parsed = ParseManifest(ReadText(path));
    EXPECT_THAT(Problems(Json::parse(ToJson(parsed.job))), IsEmpty()) << path;
  }
  for (std::uint64_t seed = 0; seed < Seeds(1000); ++seed) {
    std::mt19937_64 random(seed);
    const TrainingJob job = testing::RandomJob(random);
    ASSERT_THAT(Problems(Json::parse(ToJson(job))), IsEmpty()) << "seed " << seed << "\n" << ToJson(job);
  }
}

TEST(CrdTest, TheExamplesAreValid) {
  int examples = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("deploy/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    for (const FieldError& error : ParseManifest(ReadText(entry.path())).errors) {
      ADD_FAILURE() << entry.path() << " " << error.ToString();
    }
    ++examples;
  }
  EXPECT_GE(examples, 4);
}

TEST(CrdTest, EveryStatusFitsTheSchema) {
  const Json schema = Schema()["properties"]["status"];
  for (std::uint64_t seed = 0; seed < Seeds(1000); ++seed) {
    std::mt19937_64 random(seed);
    const TrainingJobStatus status = testing::RandomStatus(random);
    Json json = Json::parse(StatusToJson(status, TimeFormat::kRfc3339));
    json["conditions"] = Json::parse(R"([{"type": "Ready", "status": "True", "reason": "A", "message": "b",
        "lastTransitionTime": "2026-01-02T03:04:05.123456Z", "observedGeneration": 1}])");
    Checker checker;
    checker.Check(schema, json, "");
    ASSERT_THAT(checker.problems, IsEmpty()) << "seed " << seed << "\n" << json.dump(2);
  }
}

// The file says which broken manifests only the reader of the text can refuse, and why.
std::map<std::string, std::string> LocalOnly() {
  std::map<std::string, std::string> reasons;
  std::istringstream lines(ReadText(std::filesystem::path(kCorpus) / "local-only.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t cut = line.find(": ");
    EXPECT_NE(cut, std::string::npos) << line;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(kCorpus) / line.substr(0, cut))) << line;
    reasons.emplace(line.substr(0, cut), line.substr(cut + 2));
  }
  return reasons;
}

// The rules at the place of an error or at the objects around it, one of which must speak of it.
bool HasRule(const Json& schema, const std::string& path) {
  std::string plain = std::regex_replace(path, std::regex("\\[[0-9]+\\]"), "[]");
  const Json* at = &schema;
  std::istringstream names(plain);
  std::vector<std::string> below;
  for (std::string name; std::getline(names, name, '.');) below.push_back(name);
  const auto speaks = [](const Json& node, const std::string& field) {
    for (const Json& rule : node.value("x-kubernetes-validations", Json::array())) {
      const std::string about = rule.value("fieldPath", "");
      if (about == field || (!about.empty() && field.starts_with(about + "."))) return true;
      if (rule["rule"] == "false") return true;  // of all that is below
    }
    return false;
  };
  for (std::size_t i = 0; i < below.size(); ++i) {
    std::string rest;
    for (std::size_t j = i; j < below.size(); ++j) rest += "." + below[j];
    if (speaks(*at, rest)) return true;
    std::string name = below[i];
    const bool item = name.ends_with("[]");
    if (item) name.resize(name.size() - 2);
    if (!at->contains("properties") || !(*at)["properties"].contains(name)) return false;
    at = &(*at)["properties"][name];
    if (item) at = &(*at)["items"];
  }
  return speaks(*at, "");
}

// check_api_server.py beside the corpus asks an API server; here is what can be known without one.
TEST(CrdTest, EveryBrokenManifestIsRefusedByTheSchemaOrHasARule) {
  const Json schema = Schema();
  const auto local_only = LocalOnly();
  std::size_t refused = 0;
  for (const auto& path : Manifests("invalid")) {
    if (local_only.contains("invalid/" + path.filename().string())) continue;
    const Document document = ParseDocument(ReadText(path));
    const std::vector<FieldError> errors = ParseManifest(ReadText(path)).errors;
    ++refused;
    if (!document.readable) continue;  // no text that kubectl could send
    if (!Problems(ToJsonTree(document.root)).empty()) continue;
    for (const FieldError& error : errors) {
      // What every resource has is checked by the API server itself.
      const std::string top = error.path.substr(0, error.path.find_first_of(".["));
      if (top == "apiVersion" || top == "kind" || (top == "metadata" && error.path != "metadata.name")) continue;
      EXPECT_TRUE(HasRule(schema, error.path)) << path << " " << error.ToString();
    }
  }
  EXPECT_GE(refused, 60u);
}

void ApplyDefaults(const Json& schema, Json& value) {
  if (value.is_object() && schema.contains("properties")) {
    for (const auto& [name, property] : schema["properties"].items()) {
      if (!value.contains(name) && property.contains("default")) value[name] = property["default"];
      if (value.contains(name)) ApplyDefaults(property, value[name]);
    }
  } else if (value.is_array() && schema.contains("items")) {
    for (Json& item : value) ApplyDefaults(schema["items"], item);
  }
}

// A job read back from the API server is the one that was read from the file, whatever of it the server completed.
TEST(CrdTest, TheDefaultsAreThoseOfTheParser) {
  const Json schema = Schema()["properties"]["spec"];
  for (const auto& path : Manifests("valid")) {
    const std::string text = ReadText(path);
    Json read_back = ToJsonTree(ParseDocument(text).root);
    ApplyDefaults(schema, read_back["spec"]);
    const ParsedManifest parsed = ParseManifest(read_back.dump());
    EXPECT_THAT(parsed.errors, IsEmpty()) << path;
    EXPECT_EQ(ToJson(parsed.job), ToJson(ParseManifest(text).job)) << path;
  }
}

constexpr std::string_view kMinimal = R"({"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "lenet"}, "spec": {"parameterServer": {}, "elastic": {"minReplicas": 1, "maxReplicas": 2},
    "failurePolicy": {"rules": [{"name": "a", "roles": ["Worker"], "action": "Replace"}]},
    "scheduling": {"avoidNodes": {}}, "model": {"name": "LeNet"}, "dataset": {"format": "IDX", "path": "/data"}}})";

// A stored job has few of them, and the same job means the same after an upgrade of the operator: what a version of the
// format has for a default it keeps. A new version may have others. Without epochs and steps a job is of one epoch;
// that is none of these, as the API server would write it beside steps.
TEST(CrdTest, TheDefaultsOfTheVersionStayWhatTheyAre) {
  const Json expected = Json::parse(R"({
      "strategy": "ParameterServer", "suspend": false, "managedBy": "training.downpour.dev/operator",
      "parameterServer": {"replicas": 1, "replicationFactor": 1, "disruption": "Protect", "maxProtectSeconds": 3600},
      "worker": {"replicas": 1},
      "elastic": {"minReplicas": 1, "maxReplicas": 2, "shrinkAfterSeconds": 60, "growCooldownSeconds": 120},
      "successPolicy": "Coordinator", "progressDeadlineSeconds": 1800,
      "failurePolicy": {"maxRestarts": 100, "maxRestartsPerReplica": 10, "windowSeconds": 3600,
                        "backoff": {"initialSeconds": 1, "maxSeconds": 300}, "terminationTimeoutSeconds": 300,
                        "pendingTimeoutSeconds": 900,
                        "rules": [{"name": "a", "roles": ["Worker"], "onPodConditions": [], "onContainerReasons": [],
                                   "action": "Replace", "countsTowardsLimit": true}]},
      "scheduling": {"gang": "None", "provider": "Auto", "avoidNodes": {"afterFailures": 2, "forSeconds": 3600}},
      "podCleanup": {"onSuccess": "All", "onFailure": "KeepFailed"},
      "model": {"name": "LeNet", "metrics": [], "frozen": []},
      "dataset": {"format": "IDX", "path": "/data", "fields": [], "transforms": [], "columns": [], "classNames": [],
                  "shuffle": "Full", "pinMemory": true, "onDevice": "Auto"},
      "training": {"batchSize": 128, "seed": 1, "device": "Auto", "precision": "fp32", "memoryFormat": "Auto", "threads": 0,
                   "updatesPerShard": 0, "evaluate": true},
      "update": {"mode": "Async", "codec": "fp32", "pullCodec": "fp32", "accumulate": 1, "localSteps": 1, "fetchEvery": 1,
                 "optimizer": {"type": "SGD", "learningRate": 0.01, "noDecay": [],
                               "stalenessRule": "Divide"}},
      "output": {"directory": "", "keepSeconds": 3600}})");
  EXPECT_EQ(Json::parse(ToJson(ParseManifest(kMinimal).job))["spec"], expected);
}

// What `kubectl explain` says of a field that is not there is what is taken for it.
TEST(CrdTest, DescriptionsSayTheDefaults) {
  const Json schema = Schema()["properties"]["spec"];
  int said = 0;
  const auto required = [](const Json& node, const std::string& name) {
    const Json names = node.value("required", Json::array());
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::function<void(const Json&, const Json&, const Json&)> look = [&](const Json& node, const Json& defaults,
                                                                              const Json& stated) {
    for (const auto& [name, value] : defaults.items()) {
      const Json& property = node["properties"][name];
      const Json here = stated.value(name, Json::object());
      if (value.is_object()) look(property, value, here);
      if (value.is_array() && !value.empty() && value[0].is_object()) look(property["items"], value[0], here[0]);
      if (!value.is_primitive() || value == "" || required(node, name) || stated.contains(name)) continue;
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      EXPECT_THAT(property.value("description", ""), HasSubstr(absl::StrCat(" Default: ", text, "."))) << name;
      ++said;
    }
  };
  look(schema, Json::parse(ToJson(ParseManifest(kMinimal).job))["spec"], Json::parse(kMinimal)["spec"]);
  EXPECT_GE(said, 30);
}

// The rest is said, not stored.
TEST(CrdTest, FewDefaultsAreStored) {
  Json spec = Json::object();
  ApplyDefaults(Schema()["properties"]["spec"], spec);
  EXPECT_EQ(spec, Json::parse(R"({
      "strategy": "ParameterServer", "suspend": false, "managedBy": "training.downpour.dev/operator",
      "worker": {"replicas": 1}, "successPolicy": "Coordinator", "progressDeadlineSeconds": 1800, "update": {}})"));
}

// Whether a rule of the API server keeps the field, or all of an object around it, as it is.
bool IsKept(const std::string& path) {
  Json at = Schema();
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    at = Json(at["properties"][name]);
    for (const Json& rule : at.value("x-kubernetes-validations", Json::array())) {
      if (rule.value("rule", "").starts_with("self == oldSelf")) return true;
    }
  }
  return false;
}

TEST(CrdTest, OfHowUpdatesAreAppliedTheModeMayChangeAndNothingElse) {
  const Json update = Schema()["properties"]["spec"]["properties"]["update"];
  std::set<std::string> may_change;
  for (const auto& [name, property] : update["properties"].items()) {
    if (!IsKept(absl::StrCat("spec.update.", name))) may_change.insert(name);
  }
  EXPECT_THAT(may_change, ElementsAre("mode", "staleness", "updatesPerStep", "warmStart"));
  EXPECT_TRUE(IsKept("spec.update.optimizer.learningRate"));
  // Neither does what was not there appear: for that spec.update itself has to be there.
  EXPECT_TRUE(update.contains("default"));
  std::set<std::string> rules;
  for (const Json& rule : update["x-kubernetes-validations"]) rules.insert(rule["rule"].get<std::string>());
  for (const auto& [name, property] : update["properties"].items()) {
    EXPECT_EQ(rules.count(absl::StrCat("has(self.", name, ") == has(oldSelf.", name, ")")), 1 - may_change.count(name))
        << name;
  }
}

}  // namespace
}  // namespace downpour::api
