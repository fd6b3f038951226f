// What must hold for every manifest: those of tests/testdata/manifests, and random ones.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/api/fields.h"
#include "operator/api/manifest.h"
#include "operator/api/testing/corpus.h"
#include "operator/api/testing/manifest_errors.h"
#include "operator/api/testing/random_job.h"
#include "tests/support/seeds.h"

namespace downpour::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using testing::kCorpus;
using testing::Lines;
using testing::Manifests;
using testing::ReadText;

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

// The names of local-only.txt below this folder, and why.
std::map<std::string, std::string> LocalOnly(const std::string& folder) {
  std::map<std::string, std::string> reasons;
  std::istringstream text(ReadText(std::filesystem::path(kCorpus) / "local-only.txt"));
  for (std::string line; std::getline(text, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with(folder + "/") || colon == std::string::npos) continue;
    reasons[line.substr(folder.size() + 1, colon - folder.size() - 1)] = line.substr(colon + 2);
  }
  return reasons;
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

// Whether each field of `stored`, as the API server has it, is the same in `ours`, where all defaults are filled in.
void ExpectFields(const nlohmann::json& stored, const nlohmann::json& ours, const std::string& at) {
  if (!stored.is_object()) {
    EXPECT_EQ(stored, ours) << at;
    return;
  }
  ASSERT_TRUE(ours.is_object()) << at;
  for (const auto& [name, value] : stored.items()) {
    if (!ours.contains(name)) {
      ADD_FAILURE() << at << "." << name << " is missing";
      continue;
    }
    ExpectFields(value, ours.at(name), at + "." + name);
  }
}

// alike.json is what a real API server says; check_alike.py holds it to that.
TEST(ManifestCorpusTest, KubectlAndTheParserReadTheSame) {
  const auto recorded = nlohmann::json::parse(ReadText(std::filesystem::path(kCorpus) / "alike.json"));
  const std::map<std::string, std::string> exempt = LocalOnly("alike");
  const auto paths = Manifests("alike");
  EXPECT_EQ(paths.size(), recorded.size());
  EXPECT_GE(paths.size(), 60u);
  for (const auto& path : paths) {
    const std::string name = path.filename().string();
    ASSERT_TRUE(recorded.contains(name)) << name;
    const nlohmann::json& stored = recorded.at(name);
    const ParsedManifest parsed = ParseManifest(ReadText(path));
    if (exempt.contains(name)) {
      EXPECT_NE(parsed.errors.empty(), !stored.is_null()) << name << " need not be in local-only.txt";
      continue;
    }
    ASSERT_EQ(parsed.errors.empty(), !stored.is_null())
        << name << ": " << ::testing::PrintToString(Lines(parsed.errors));
    if (stored.is_null()) continue;
    ASSERT_EQ(stored.size(), 1u) << name;
    ExpectFields(stored.at(0), nlohmann::json::parse(ToJson(parsed.job)).at("spec"), name);
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
  EXPECT_EQ(policy.rules[2].on_exit_codes,
            (ExitCodeRule{.in = true, .values = {1, 2, 126, 127}, .container_name = "trainer"}));
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

}  // namespace
}  // namespace downpour::api
