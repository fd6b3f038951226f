#include "cli/render/comparison.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "cli/render/testing/markup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using cli::testing::CheckMarkup;
using cli::testing::kHostile;
using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& page, const std::string& text) {
  int found = 0;
  for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++found;
  return found;
}

ComparedRun MakeRun(const std::string& name) {
  ComparedRun run;
  run.name = name;
  run.phase = "Succeeded";
  run.mode = "Async";
  run.optimizer = "SGD";
  run.codec = "fp32";
  run.workers = 3;
  run.ps = 1;
  return run;
}

// Two runs; the second has no bytes and was not evaluated.
Comparison MakeComparison() {
  Comparison comparison;
  comparison.targets = {"accuracy=0.85"};
  comparison.runs = {MakeRun("mlp-1"), MakeRun("mlp-2")};
  ComparedRun& first = comparison.runs[0];
  first.loss = 0.25;
  first.best = {{"Accuracy", 0.8712}};
  first.samples_per_second = 16900;
  first.seconds_to = {12.25};
  first.lost_updates = 0;
  first.bytes = NetworkBytes{570000000, 581000000};
  comparison.runs[1].seconds_to = {std::nullopt};
  comparison.differences = {{"spec.update.optimizer.learningRate", {"0.1", "0.4"}}, {"spec.elastic", {"{}", {}}}};
  comparison.quantities = {
      {"training loss",
       "loss",
       true,
       {{0, {{0.9, 0, 100, 1000}, {0.25, 90, 6e5, 2e6}}}, {1, {{0.8, 0, 100, {}}, {0.3, 60, 3e5, {}}}}}},
      {"test accuracy", "accuracy", false, {{0, {{0.8712, 60, 3e5, 1e6, "mlp-1 after epoch 5: accuracy 0.8712"}}}}}};
  return comparison;
}

TEST(RenderComparisonTest, HasTheTableTheDifferencesAndThreePlotsOfEachQuantity) {
  const std::string page = RenderComparison(MakeComparison());
  std::string text;
  EXPECT_EQ(CheckMarkup(page, &text), "");
  for (const char* cell :
       {"mlp-1", "Async", "SGD", "fp32", "0.2500", "accuracy 0.8712", "16.9k", "12 s", "570MB", "581MB"}) {
    EXPECT_THAT(page, HasSubstr(std::string("<td>") + cell + "</td>"));
  }
  EXPECT_THAT(page, HasSubstr("<th>to accuracy=0.85</th>"));
  EXPECT_THAT(page, HasSubstr("<td><code>spec.update.optimizer.learningRate</code></td><td>0.1</td><td>0.4</td>"));
  EXPECT_THAT(page, HasSubstr("<td><code>spec.elastic</code></td><td>{}</td><td>-</td>"));
  for (const char* title :
       {"Training loss against time", "Training loss against samples", "Training loss against bytes",
        "Test accuracy against time", "Test accuracy against samples", "Test accuracy against bytes"}) {
    EXPECT_THAT(page, HasSubstr(std::string("<figcaption>") + title + "</figcaption><svg"));
  }
  for (const char* label :
       {"time since the first update of the run", "samples trained on", "bytes pushed and pulled"}) {
    EXPECT_EQ(Count(page, std::string(">") + label + "</text>"), 2) << label;
  }
  EXPECT_EQ(Count(page, ">loss</text>"), 3);
  EXPECT_EQ(Count(page, ">accuracy</text>"), 3);
  EXPECT_THAT(page, HasSubstr(">1:30</text>")) << "time";
  EXPECT_THAT(page, HasSubstr(">500k</text>")) << "samples and bytes";
  EXPECT_EQ(Count(page, "<title>mlp-1 after epoch 5: accuracy 0.8712</title>"), 3);
  EXPECT_EQ(Count(page, "Not recorded: mlp-2"), 4) << "its accuracy, and bytes";
}

TEST(RenderComparisonTest, ALineAndItsLegendHaveTheColourOfTheRun) {
  const std::string page = RenderComparison(MakeComparison());
  EXPECT_EQ(Count(page, "<path class=\"curve r0\" d=\"M2 4L26 4\"/></svg>mlp-1</span>"), 6);
  EXPECT_EQ(Count(page, "<path class=\"curve r1\" d=\"M2 4L26 4\"/></svg>mlp-2</span>"), 2);
  EXPECT_EQ(Count(page, "\"><title>mlp-1</title></path>"), 6);

  Comparison many;
  for (int i = 0; i < 28; ++i) many.runs.push_back(MakeRun("run-" + std::to_string(i)));
  const std::string all = RenderComparison(many);
  std::set<std::string> styles;
  const std::string begin = "<path class=\"curve ";
  for (std::size_t at = all.find(begin); at != std::string::npos; at = all.find(begin, at + 1)) {
    styles.insert(all.substr(at, all.find('"', at + begin.size()) - at));
  }
  EXPECT_EQ(styles.size(), 28u) << "colours, and dashes where they are used up";
}

TEST(RenderComparisonTest, HostileTextStaysText) {
  Comparison comparison = MakeComparison();
  comparison.targets = {kHostile};
  ComparedRun& run = comparison.runs[0];
  for (std::string* text : {&run.name, &run.phase, &run.mode, &run.optimizer, &run.codec}) *text = kHostile;
  run.best = {{kHostile, 1}};
  comparison.runs[1].name = kHostile + std::string("2");
  comparison.differences.push_back({kHostile, {kHostile, kHostile}});
  for (ComparedQuantity& quantity : comparison.quantities) {
    quantity.name = quantity.unit = kHostile;
    for (ComparedSeries& series : quantity.series) series.points[0].title = kHostile;
  }
  const std::string page = RenderComparison(comparison);
  std::string text;
  EXPECT_EQ(CheckMarkup(page, &text), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  for (const char c : RenderComparisonText(comparison)) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST(RenderComparisonTest, LoadsNothing) {
  const std::string page = RenderComparison(MakeComparison());
  for (const char* text : {"http:", "https:", "url(", "@import", "<script", "<link", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(text)));
  }
}

TEST(RenderComparisonTest, WhatIsNoNumberIsNotDrawn) {
  Comparison comparison = MakeComparison();
  comparison.quantities[0].series[0].points = {
      {0.5, 1, 10, 10}, {std::nan(""), 0, {}, {}}, {0.4, 2, 20, INFINITY}, {HUGE_VAL, 3, 30, 30}};
  comparison.quantities[1].series[0].points = {{std::nan(""), 1, 1, 1}};
  const std::string page = RenderComparison(comparison);
  std::string text;
  EXPECT_EQ(CheckMarkup(page, &text), "");
  EXPECT_EQ(Count(page, "<p class=\"none\">"), 3) << "all plots of the accuracy";
}

TEST(RenderComparisonTest, NothingComparedIsSaid) {
  Comparison comparison;
  comparison.runs = {MakeRun("a")};
  const std::string page = RenderComparison(comparison);
  std::string text;
  EXPECT_EQ(CheckMarkup(page, &text), "");
  EXPECT_THAT(page, HasSubstr("Nothing."));
}

TEST(RenderComparisonTextTest, IsATable) {
  EXPECT_EQ(RenderComparisonText(MakeComparison()),
            "NAME   PHASE      MODE   OPTIMIZER  CODEC  WORKERS  PS  LOSS    BEST TEST METRICS  SAMPLES/S  "
            "TO ACCURACY=0.85  UPDATES LOST  PUSHED  PULLED\n"
            "mlp-1  Succeeded  Async  SGD        fp32   3        1   0.2500  accuracy 0.8712    16.9k      "
            "12 s              0             570MB   581MB\n"
            "mlp-2  Succeeded  Async  SGD        fp32   3        1   -       -                  -          "
            "-                 -             -       -\n");
}

}  // namespace
}  // namespace downpour::cli
