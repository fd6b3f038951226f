#ifndef DOWNPOUR_TRAINER_MODEL_TESTING_LATE_COPIES_H_
#define DOWNPOUR_TRAINER_MODEL_TESTING_LATE_COPIES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/model/copy_queue.h"

namespace downpour::model::testing {

// The worst device there can be: a copy is made when somebody waits for it and not before, so that whoever forgets to
// wait computes with what was there, and whoever overwrites its source too early copies the wrong values. It computes
// at once; `computed` counts how often, where a test says so, and each copy tells behind which of these it was put.
class LateCopies final : public CopyQueue {
 public:
  struct Made {
    const void* to;
    std::uint64_t behind;  // of `computed`
  };
  // Outlives the queue.
  struct Record {
    std::uint64_t computed = 0;
    std::vector<Made> made;
    int allocations = 0;  // of memory of the host
    int awaited = 0;      // by the host, and not made before
    bool fails = false;   // the next copy throws
  };
  explicit LateCopies(Record* record) : record_(record) {}

  at::Device device() const override { return at::kCPU; }
  at::Tensor HostMemory(std::int64_t elements, at::ScalarType type) const override {
    ++record_->allocations;
    return at::empty({elements}, type);
  }
  std::unique_ptr<Mark> NewMark() const override { return std::make_unique<Point>(); }

  void Copy(const at::Tensor& to, const at::Tensor& from) override {
    TORCH_CHECK(!std::exchange(record_->fails, false), "the copy engine is gone");
    waiting_.push_back({to, from, behind_});
    ++handed_over_;
  }
  void MarkCopies(Mark* mark) override { static_cast<Point*>(mark)->copies = handed_over_; }
  void MarkComputing(Mark* mark) override { static_cast<Point*>(mark)->computed = record_->computed; }
  void CopyBehind(const Mark& mark) override { behind_ = std::max(behind_, static_cast<const Point&>(mark).computed); }
  void ComputeBehind(const Mark& mark) override { Make(mark); }
  void Await(const Mark& mark, absl::Duration) const override {
    if (made_ < static_cast<const Point&>(mark).copies) ++record_->awaited;
    const_cast<LateCopies*>(this)->Make(mark);
  }

 private:
  struct Point final : Mark {
    std::uint64_t copies = 0, computed = 0;
  };
  struct Waiting {
    at::Tensor to, from;
    std::uint64_t behind;
  };
  void Make(const Mark& mark) {
    for (; made_ < static_cast<const Point&>(mark).copies; ++made_) {
      const at::NoGradGuard no_grad;
      waiting_.front().to.copy_(waiting_.front().from);
      record_->made.push_back({waiting_.front().to.data_ptr(), waiting_.front().behind});
      waiting_.pop_front();
    }
  }

  Record* const record_;
  std::deque<Waiting> waiting_;
  std::uint64_t handed_over_ = 0, made_ = 0, behind_ = 0;
};

}  // namespace downpour::model::testing

#endif  // DOWNPOUR_TRAINER_MODEL_TESTING_LATE_COPIES_H_
