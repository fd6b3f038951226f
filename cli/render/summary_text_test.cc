#include "cli/render/summary_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SummaryTextTest, VerdictIsExactOnlyIfNothingIsMissingOrTwice) {
  EXPECT_TRUE(LedgerExact({10, 10, 0, 0, 2}));
  EXPECT_THAT(LedgerVerdict({10, 10, 0, 0, 2}), HasSubstr("exact: each of 10 updates"));
  EXPECT_THAT(LedgerVerdict({10, 10, 0, 0, 2}), HasSubstr("2 skipped"));
  for (const LedgerSummary& ledger :
       {LedgerSummary{10, 9, 1, 0, 0}, LedgerSummary{10, 10, 0, 3, 0}, LedgerSummary{10, 9, 2, 1, 0}}) {
    EXPECT_FALSE(LedgerExact(ledger));
    EXPECT_THAT(LedgerVerdict(ledger), Not(HasSubstr("exact")));
  }
  EXPECT_EQ(LedgerVerdict({10, 9, 2, 1, 0}), "8 of 10 updates are on every slice, 2 missing, 1 applied twice");
}

TEST(SummaryTextTest, SaysWhatIsKnown) {
  RunSummary summary;
  summary.job = "lenet";
  summary.phase = "Succeeded";
  summary.test_metrics = {{"Accuracy", 0.87125}};
  summary.epochs = 10;
  summary.samples_per_second = 12345;
  summary.first_update_seconds = 1.42;
  summary.total_seconds = 97;
  summary.restarts = 2;
  summary.ledger = LedgerSummary{2350, 2350, 0, 0, 0};
  summary.run_directory = "runs/lenet-1";
  const std::string text = RenderSummaryText(summary, false);
  for (const char* part :
       {"Succeeded  lenet in 1 m 37 s\n", "accuracy 0.8712", "10 epochs, 12.3k samples/s", "first update after 1.42 s",
        "restarts    2\n", "exact: each of 2350", "runs/lenet-1/report.html\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("why")));
  for (const char* part : {"gradients", "resumed", "lost", "checkpoint"}) EXPECT_THAT(text, Not(HasSubstr(part)));
  summary.resumed_from = "/ckpt/lenet/3";
  summary.lost_updates = 12;
  summary.push_bytes = 1200000;
  summary.push_bytes_saved = 3600000;
  summary.checkpoint = "/ckpt/lenet/9";
  summary.checkpoint_updates = 2300;
  for (const char* part :
       {"gradients   1.20M bytes pushed, 3.60M saved by the codec (4.0 times smaller)\n", "resumed     /ckpt/lenet/3\n",
        "lost        12 updates, applied again\n", "checkpoint  /ckpt/lenet/9 (update 2300)\n"}) {
    EXPECT_THAT(RenderSummaryText(summary, false), HasSubstr(part));
  }
  summary.samples_per_second.reset();
  EXPECT_THAT(RenderSummaryText(summary, false), HasSubstr("10 epochs, - samples/s"));
  for (const char* part : {"  rate ", "  best "}) EXPECT_THAT(RenderSummaryText(summary, false), Not(HasSubstr(part)));
  summary.message = "stopped early after epoch 7";
  summary.rate_reason = "the learning rate is multiplied by 0.5 since epoch 4";
  summary.best_epoch = 4;
  summary.best_reason = "Loss was best after epoch 4, 0.25";
  summary.best_path = "/models/best.safetensors";
  for (const char* part :
       {"why         stopped early after epoch 7\n",
        "rate        the learning rate is multiplied by 0.5 since epoch 4\n",
        "best        Loss was best after epoch 4, 0.25\n", "best model  /models/best.safetensors\n"}) {
    EXPECT_THAT(RenderSummaryText(summary, false), HasSubstr(part));
  }
}

TEST(SummaryTextTest, MetricsAreSaidByTheirNames) {
  RunSummary summary;
  EXPECT_THAT(RenderSummaryText(summary, false), Not(HasSubstr("  test ")));
  summary.test_loss = 0.0021;
  EXPECT_THAT(RenderSummaryText(summary, false), HasSubstr("\n  test        loss 0.0021\n"));
  summary.test_metrics = {{"MeanAbsoluteError", 0.0312}};
  EXPECT_THAT(RenderSummaryText(summary, false), HasSubstr("\n  test        MeanAbsoluteError 0.0312, loss 0.0021\n"));
  summary.test_metrics = {{"Accuracy", 0.8712}, {"Top5Accuracy", 0.9911}};
  EXPECT_THAT(RenderSummaryText(summary, false),
              HasSubstr("\n  test        accuracy 0.8712, Top5Accuracy 0.9911, loss 0.0021\n"));
}

TEST(SummaryTextTest, WhatWasNotAuditedSaysSoInTheEnd) {
  RunSummary summary;
  summary.phase = "Succeeded";
  summary.message = "the ledger could not be read: the ps at 127.0.0.1:1: refused";
  summary.run_directory = "runs/lenet-1";
  EXPECT_THAT(RenderSummaryText(summary, false), ::testing::EndsWith("Not audited: " + summary.message + "\n"));
  summary.ledger = LedgerSummary{10, 10, 0, 0, 0};
  EXPECT_THAT(RenderSummaryText(summary, false), Not(HasSubstr("Not audited")));
}

TEST(SummaryTextTest, WarningsAreItsLastLines) {
  RunSummary summary;
  summary.phase = "Succeeded";
  summary.run_directory = "runs/lenet-1";
  summary.ledger = LedgerSummary{40, 40, 0, 0, 39};
  summary.warnings = {"worker-0: the directory\x1b cannot be synced", "39 of 40 updates were skipped"};
  EXPECT_THAT(RenderSummaryText(summary, false),
              ::testing::EndsWith("report.html\nWarning: worker-0: the directory  cannot be synced\n"
                                  "Warning: 39 of 40 updates were skipped\n"));
}

TEST(SummaryTextTest, EmptyAndHostileRuns) {
  EXPECT_THAT(RenderSummaryText({}, false), HasSubstr("ledger      not read"));
  RunSummary summary;
  summary.phase = "Failed";
  summary.message = "no\x1b[2J data\nset";
  const std::string text = RenderSummaryText(summary, false);
  EXPECT_THAT(text, HasSubstr("why         no [2J data set\n"));
  EXPECT_THAT(RenderSummaryText(summary, true), HasSubstr("\x1b[1;31mFailed\x1b[0m"));
}

TEST(SummaryTextTest, WithoutParameterServersUpdatesAreInTheModelsOfWorkers) {
  LedgerSummary ledger{10, 10, 0, 0, 0};
  ledger.of_workers = true;
  EXPECT_EQ(LedgerVerdict(ledger), "exact: each of 10 updates is in every worker's model, once");
  ledger.missing = 2;
  EXPECT_EQ(LedgerVerdict(ledger), "8 of 10 updates are in every worker's model, 2 missing, 0 applied twice");
}

}  // namespace
}  // namespace downpour::cli
