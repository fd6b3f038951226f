#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/history_recorder.h"
#include "cli/testing/command_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kManifest[] = R"({
  "apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "demo"},
  "spec": {"parameterServer": {"replicas": 1}, "worker": {"replicas": 2}, "model": {"name": "MLP"},
           "dataset": {"format": "IDX", "path": "/data"}, "training": {"epochs": 2},
           "update": {"optimizer": {"learningRate": RATE}}}})";

class CompareCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MakeRun("one", "0.1", /*over=*/true);
    MakeRun("downpour-runs/demo-2", "0.4", /*over=*/false);
  }

  // A run as `downpour run` records it, of two epochs of ten updates.
  void MakeRun(const std::string& directory, const std::string& rate, bool over) {
    const std::string root = Path(directory);
    fs::create_directories(root);
    std::string manifest = kManifest;
    manifest.replace(manifest.find("RATE"), 4, rate);
    WriteText(root + "/job.json", manifest);
    HistoryRecorder recorder({}, "0123", root, 0);
    std::string lines;
    for (std::uint32_t update = 1; update <= 20; ++update) {
      v1::ProgressReply reply;
      reply.mutable_view()->set_generation(1);
      reply.set_updates_applied(update);
      reply.set_updates_per_epoch(10);
      reply.set_epochs_done(update / 10);
      reply.set_samples_done(update * 32);
      reply.set_loss(1.0 / update);
      v1::MemberProgress* const ps = reply.add_members();
      ps->set_role("ps");
      ps->mutable_ps()->set_received_bytes(update * 700);
      ps->mutable_ps()->set_sent_bytes(update * 300);
      if (update >= 10) {
        v1::Evaluation* const evaluation = reply.add_evaluations();
        evaluation->set_dataset_epoch(1);
        evaluation->set_accuracy(0.875);
      }
      for (const std::string& line : recorder.AddProgress(update, reply, std::nullopt, 0)) lines += line + "\n";
    }
    WriteText(root + "/metrics.jsonl", lines);
    if (!over) return;
    recorder.Finish(21, kSucceeded, "", 0, LedgerSummary{20, 20, 0, 0, 0});
    WriteText(root + "/summary.json", SummaryToJson(recorder.history().summary));
  }

  // The exit code; what it printed is in `output_` and `errors_`.
  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "compare");
    Command command(
        {.arguments = std::move(arguments), .environment = {}, .directory = folder_.path(), .file_size_limit = {}});
    const int exit_code = command.Wait();
    output_ = command.Output();
    errors_ = command.Errors();
    return exit_code;
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  ScratchFolder folder_;
  std::string output_;
  std::string errors_;
};

TEST_F(CompareCommandTest, MakesAPageAndPrintsTheTable) {
  EXPECT_EQ(Run({"one", "demo-2"}), kExitDone) << errors_;
  EXPECT_THAT(output_, HasSubstr("one     Succeeded  Async"));
  EXPECT_THAT(output_, HasSubstr("demo-2  Lost       Async"));
  EXPECT_THAT(output_, HasSubstr("page: compare.html\n"));
  const std::string page = ReadText(Path("compare.html"));
  for (const char* text : {"Training loss against bytes", "Test accuracy against samples", "</svg>demo-2</span>",
                           "<td><code>spec.update.optimizer.learningRate</code></td><td>0.1</td><td>0.4</td>"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_EQ(Run({Path("one"), "-o", "single.html"}), kExitDone) << errors_;
  EXPECT_TRUE(fs::exists(Path("single.html")));
}

TEST_F(CompareCommandTest, PrintsJson) {
  EXPECT_EQ(Run({"one", "demo-2", "--json", "--target", "accuracy=0.85", "--target", "accuracy=0.9"}), kExitDone)
      << errors_;
  EXPECT_FALSE(fs::exists(Path("compare.html"))) << "nobody asked for it";
  const nlohmann::json document = nlohmann::json::parse(output_);
  const nlohmann::json& first = document.at("runs").at(0);
  EXPECT_EQ(first.at("directory"), Path("one"));
  EXPECT_EQ(first.at("loss"), 0.05);
  EXPECT_EQ(first.at("bestMetrics").at("Accuracy"), 0.875);
  EXPECT_EQ(first.at("secondsTo").at("accuracy=0.85"), 9.0);
  EXPECT_TRUE(first.at("secondsTo").at("accuracy=0.9").is_null());
  EXPECT_EQ(first.at("lostUpdates"), 0);
  EXPECT_EQ(first.at("receivedBytes"), 14000);
  const nlohmann::json& second = document.at("runs").at(1);
  EXPECT_EQ(second.at("secondsTo").at("accuracy=0.85"), 9.0);
  EXPECT_TRUE(second.at("lostUpdates").is_null());
  EXPECT_EQ(second.at("sentBytes"), 6000);
  EXPECT_EQ(document.at("differences").size(), 1u);
  EXPECT_EQ(Run({"one", "--json", "--output", "asked.html"}), kExitDone) << errors_;
  EXPECT_TRUE(fs::exists(Path("asked.html")));
}

TEST_F(CompareCommandTest, SaysWhatIsWrongWithTheInput) {
  fs::create_directories(Path("empty"));
  fs::create_directories(Path("broken"));
  WriteText(Path("broken/job.json"), R"({"kind": "TrainingJob"})");
  MakeRun("torn", "0.1", true);
  WriteText(Path("torn/summary.json"), "{");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "RUN"},
      {{"one", "empty"}, "empty: not the folder of a run, which has a job.json, nor the name of one in downpour-runs"},
      {{"one", "none"}, "none: not the folder of a run"},
      {{"broken"}, "broken/job.json: "},
      {{"torn"}, "torn/summary.json: not a run's summary"},
      {{"one", "./one"}, "one: is named twice"},
      {{"one", "--target", "F1=0.5"}, "--target F1=0.5: no run has the metric F1; there are accuracy, loss"},
      {{"one", "--target", "accuracy"}, "--target accuracy: expected METRIC=NUMBER"},
      {{"one", "--output", ""}, "must not be empty"},
      {{"one", "--output", "no/such/page.html"}, "no/such/page.html"}};
  for (const auto& [arguments, expected] : cases) {
    EXPECT_EQ(Run(arguments), kExitBadInput) << expected;
    EXPECT_THAT(errors_, HasSubstr(expected));
    EXPECT_THAT(output_, IsEmpty()) << expected;
  }
  EXPECT_FALSE(fs::exists(Path("compare.html")));
}

}  // namespace
}  // namespace downpour::cli::testing
