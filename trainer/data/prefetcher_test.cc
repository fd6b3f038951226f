#include "trainer/data/prefetcher.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/source_dataset.h"
#include "trainer/data/testing/memory_source.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using testing::MemorySource;
using testing::ValueOf;

// One number a sample: its index. Each Read waits until the test lets it go on.
class SlowDataset final : public Dataset {
 public:
  std::int64_t size() const override { return 1000; }
  const SampleFields& fields() const override { return fields_; }

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    const std::int64_t first = indices.front();
    absl::MutexLock lock(&mutex_);
    begun_.push_back(first);
    const auto may = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return permits_ > 0 || stopped_; };
    mutex_.Await(absl::Condition(&may));
    if (stopped_) return absl::CancelledError("stopped");
    --permits_;
    if (errors_[first]-- > 0) return absl::DataLossError("broken");
    Batch batch{{MakeArray(fields_.inputs[0], static_cast<std::int64_t>(indices.size()))}, {}};
    std::copy(indices.begin(), indices.end(), batch.inputs[0].mutable_values<std::int64_t>().begin());
    return batch;
  }
  void Stop() const override {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }

  void Permit(int reads) {
    absl::MutexLock lock(&mutex_);
    permits_ += reads;
  }
  void FailOnce(std::int64_t first) {
    absl::MutexLock lock(&mutex_);
    errors_[first] = 1;
  }
  // Waits until so many reads were begun, and says which.
  std::vector<std::int64_t> WaitForBegun(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return begun_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
    return begun_;
  }

 private:
  const SampleFields fields_{{{"index", ElementType::kI64, {}, 0}}, {}};
  mutable absl::Mutex mutex_;
  mutable std::vector<std::int64_t> begun_ ABSL_GUARDED_BY(mutex_);
  mutable int permits_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::map<std::int64_t, int> errors_ ABSL_GUARDED_BY(mutex_);
  mutable bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

BatchRequest Request(std::int64_t first) { return {{first, first + 1}, 7}; }

TEST(PrefetcherTest, ReadsInTheOrderThatIsWantedAndNoFurther) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 2});
  prefetcher.Want({Request(10), Request(20), Request(30)});
  dataset.Permit(1);
  EXPECT_THAT(dataset.WaitForBegun(2), ElementsAre(10, 20));
  dataset.Permit(2);
  EXPECT_THAT((*prefetcher.Take(Request(10)))->inputs[0].values<std::int64_t>(), ElementsAre(10, 11));
  EXPECT_THAT((*prefetcher.Take(Request(20)))->inputs[0].values<std::int64_t>(), ElementsAre(20, 21));
  // 30 was more than two ahead.
  EXPECT_THAT((*prefetcher.Take(Request(30)))->inputs[0].values<std::int64_t>(), ElementsAre(30, 31));
  EXPECT_THAT(dataset.WaitForBegun(3), ElementsAre(10, 20, 30));
}

TEST(PrefetcherTest, BytesBoundWhatIsReadAhead) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 3, .most_bytes = 40});
  prefetcher.Want({Request(10), Request(20), Request(30)});
  dataset.Permit(2);
  EXPECT_THAT(dataset.WaitForBegun(2), ElementsAre(10, 20));
  // With the third one it would be 48 bytes: 40, which is read by Take, comes before it.
  dataset.Permit(2);
  ASSERT_TRUE(prefetcher.Take(Request(40)).ok());
  EXPECT_THAT(dataset.WaitForBegun(3), ElementsAre(10, 20, 40));
  ASSERT_TRUE(prefetcher.Take(Request(20)).ok());
  EXPECT_THAT(dataset.WaitForBegun(4), ElementsAre(10, 20, 40, 30)) << "there is room again";
}

TEST(PrefetcherTest, OneThatIsLargerThanAllThatMayBeReadAheadIsReadAheadAlone) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 2, .most_bytes = 1});
  prefetcher.Want({Request(10), Request(20)});
  dataset.Permit(3);
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(10));
  ASSERT_TRUE(prefetcher.Take(Request(10)).ok());
  EXPECT_THAT(dataset.WaitForBegun(2), ElementsAre(10, 20));
}

TEST(PrefetcherTest, WhatIsNotWantedAnyMoreIsDropped) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 2});
  prefetcher.Want({Request(10), Request(20)});
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(10));
  prefetcher.Want({Request(30)});
  dataset.Permit(2);
  ASSERT_TRUE(prefetcher.Take(Request(30)).ok());
  EXPECT_THAT(dataset.WaitForBegun(2), ElementsAre(10, 30)) << "20 is never read";
  dataset.Permit(1);
  EXPECT_THAT((*prefetcher.Take(Request(10)))->inputs[0].values<std::int64_t>(), ElementsAre(10, 11));
  EXPECT_THAT(dataset.WaitForBegun(3), ElementsAre(10, 30, 10)) << "it was dropped, and is read again";
}

TEST(PrefetcherTest, WhatIsWantedAgainWhileItIsReadIsReadOnce) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 1});
  prefetcher.Want({Request(10)});
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(10));
  prefetcher.Want({});
  prefetcher.Want({Request(10)});
  dataset.Permit(1);
  // Were it read twice, this would wait for ever.
  EXPECT_TRUE(prefetcher.Take(Request(10)).ok());
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(10));
}

TEST(PrefetcherTest, WhatIsWantedTwiceIsReadTwice) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 2});
  prefetcher.Want({Request(10)});
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(10));
  prefetcher.Want({Request(10), Request(10)});
  dataset.Permit(2);
  EXPECT_TRUE(prefetcher.Take(Request(10)).ok());
  EXPECT_TRUE(prefetcher.Take(Request(10)).ok());
  EXPECT_THAT(dataset.WaitForBegun(2), ElementsAre(10, 10));
}

TEST(PrefetcherTest, AnErrorIsOfItsMinibatchAndCanBeAskedForAgain) {
  SlowDataset dataset;
  dataset.FailOnce(10);
  dataset.Permit(3);
  Prefetcher prefetcher(&dataset, {.batches = 2});
  prefetcher.Want({Request(10), Request(20)});
  EXPECT_TRUE(absl::IsDataLoss(prefetcher.Take(Request(10)).status()));
  EXPECT_TRUE(prefetcher.Take(Request(20)).ok());
  EXPECT_TRUE(prefetcher.Take(Request(10)).ok());
}

TEST(PrefetcherTest, TheFirstThatIsReadCanBeHadBeforeItIsTaken) {
  SlowDataset dataset;
  dataset.FailOnce(30);
  Prefetcher prefetcher(&dataset, {.batches = 2});
  EXPECT_EQ(prefetcher.Ahead(), nullptr);
  prefetcher.Want({Request(10), Request(20)});
  EXPECT_EQ(prefetcher.Ahead(), nullptr) << "it is not read yet";
  dataset.Permit(1);
  dataset.WaitForBegun(2);
  const std::shared_ptr<const Batch> ahead = prefetcher.Ahead();
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(prefetcher.Ahead(), ahead);
  EXPECT_EQ(*prefetcher.Take(Request(10)), ahead) << "and is the same object then";
  EXPECT_EQ(prefetcher.Ahead(), nullptr) << "the second is not read yet";
  prefetcher.Want({Request(30), Request(40)});
  dataset.Permit(2);
  dataset.WaitForBegun(4);
  EXPECT_EQ(prefetcher.Ahead(), nullptr) << "of an error there is nothing";
}

TEST(PrefetcherTest, WithoutPrefetchTakeReads) {
  SlowDataset dataset;
  dataset.Permit(1);
  Prefetcher prefetcher(&dataset, {.batches = 0});
  prefetcher.Want({Request(10)});
  EXPECT_TRUE(prefetcher.Take(Request(20)).ok());
  EXPECT_EQ(prefetcher.Ahead(), nullptr);
  EXPECT_THAT(dataset.WaitForBegun(1), ElementsAre(20));
  EXPECT_GE(prefetcher.times().waited, 0);
}

TEST(PrefetcherTest, EndsWhileItReads) {
  SlowDataset dataset;
  Prefetcher prefetcher(&dataset, {.batches = 2});
  prefetcher.Want({Request(10)});
  dataset.WaitForBegun(1);
  // Nothing lets the read go on but Stop.
}

TEST(PrefetcherTest, BytesAreTheSameWithAnyNumberOfThreadsAndAnyPrefetch) {
  std::vector<absl::StatusOr<Sample>> samples;
  for (int i = 0; i < 64; ++i) {
    const auto pixel = static_cast<std::uint8_t>(i);
    samples.push_back(Sample{ValueOf<std::uint8_t>({1, 2, 2}, {pixel, 1, 2, 3}), ValueOf<std::int64_t>({}, {i % 4})});
  }
  samples[20] = absl::DataLossError("broken");
  const auto source = std::make_shared<MemorySource>(
      std::vector<Column>{{"image", ElementType::kU8, {1, 2, 2}}, {"label", ElementType::kI64, {}, false, 4}},
      std::move(samples));
  std::vector<std::vector<std::byte>> expected;
  for (const int threads : {0, 1, 3}) {
    for (const std::size_t ahead : {0U, 1U, 2U, 5U}) {
      const auto dataset = MakeSourceDataset(
          source,
          {{.column = "image", .steps = {[](const Column& column) { return RandomFlip(column, 0.5); }}},
           {.column = "label", .target = true}},
          {.skip = true, .most = 100}, threads);
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      Prefetcher prefetcher(dataset->get(), {.batches = ahead});
      std::vector<BatchRequest> requests;
      for (std::int64_t first = 0; first < 64; first += 8) {
        BatchRequest& request = requests.emplace_back();
        for (std::int64_t i = 0; i < 8; ++i) request.indices.push_back(first + i);
        request.seed = static_cast<std::uint64_t>(first);
      }
      std::vector<std::vector<std::byte>> bytes;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        prefetcher.Want({requests.begin() + static_cast<std::ptrdiff_t>(i), requests.end()});
        const auto batch = prefetcher.Take(requests[i]);
        ASSERT_TRUE(batch.ok()) << batch.status();
        bytes.push_back((*batch)->inputs[0].bytes);
      }
      if (expected.empty()) expected = bytes;
      EXPECT_EQ(bytes, expected) << threads << " threads, " << ahead << " ahead";
      EXPECT_EQ((*dataset)->skipped(), 1U);
    }
  }
}

TEST(PrefetcherTest, BrokenSamplesCountWhenTheyAreTakenAndNotWhenTheyAreDropped) {
  std::vector<absl::StatusOr<Sample>> samples;
  for (int i = 0; i < 8; ++i) {
    samples.push_back(Sample{ValueOf<float>({}, {static_cast<float>(i)}), ValueOf<std::int64_t>({}, {0})});
  }
  samples[1] = absl::DataLossError("one is broken");
  samples[3] = absl::DataLossError("three is broken");
  const auto source = std::make_shared<MemorySource>(
      std::vector<Column>{{"x", ElementType::kF32}, {"label", ElementType::kI64, {}, false, 1}}, std::move(samples));
  const auto dataset = MakeSourceDataset(source, UsualFields(source->columns()), {.skip = true, .most = 1}, 1);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Prefetcher prefetcher(dataset->get(), {.batches = 2});
  for (int i = 0; i < 10; ++i) {
    prefetcher.Want({Request(0), Request(2)});
    ASSERT_TRUE(prefetcher.Take(Request(6)).ok());
    prefetcher.Want({});  // as when a lease is lost
  }
  EXPECT_EQ((*dataset)->skipped(), 0U);
  prefetcher.Want({Request(0), Request(2)});
  const auto batch = prefetcher.Take(Request(0));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)->size(), 1);
  EXPECT_EQ((*dataset)->skipped(), 1U);
  // One more than may be: an error of the step that needs it.
  ASSERT_TRUE(prefetcher.Take(Request(4)).ok());
  EXPECT_EQ(prefetcher.Take(Request(2)).status().message(),
            "three is broken; 1 broken samples were skipped before, and no more may be");
}

}  // namespace
}  // namespace downpour::data
