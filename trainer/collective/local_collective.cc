#include "trainer/collective/local_collective.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/collective/nccl_order.h"
#include "trainer/collective/socket.h"
#include "trainer/core/codec/bf16.h"

namespace downpour::collective {
namespace {

// How many values a thread does before it looks at the group again.
constexpr std::size_t kPiece = std::size_t{1} << 16;
// Of these many values a sum stays in the nearest cache while all ranks are added.
constexpr std::size_t kBlock = std::size_t{1} << 11;

// One rank's part in an operation.
struct Work {
  Operation operation;
  bool complete = false;
  absl::Status status;
};
using WorkPointer = std::shared_ptr<Work>;

// An operation that all who take part have started.
struct Task {
  std::vector<WorkPointer> works;  // by rank; of a message those of sender and receiver
  std::size_t next = 0;            // the first value that no thread has taken
  int running = 0;                 // threads that are at some of it

  const Operation& first() const { return works.front()->operation; }
};

// Copies [begin, end) of the values.
void Move(const Operation& from, const Operation& to, std::size_t begin, std::size_t end) {
  if (begin < end && from.values.data() != to.values.data()) {
    std::memcpy(to.values.data() + begin, from.values.data() + begin, (end - begin) * sizeof(float));
  }
}

// The sum of up to kBlock values from `begin` on goes to `sum`.
void Sum(const Task& task, std::size_t begin, absl::Span<float> sum) {
  std::array<std::uint8_t, core::Bf16Bytes(kBlock)> bytes;
  const bool rounds = task.first().travels == Precision::kBfloat16 && task.works.size() > 1;
  for (std::size_t rank = 0; rank < task.works.size(); ++rank) {
    const float* const values = task.works[rank]->operation.values.data() + begin;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = rank == 0 ? values[i] : sum[i] + values[i];
    if (!rounds) continue;
    core::EncodeBf16(sum, bytes.data());
    core::DecodeBf16(absl::MakeConstSpan(bytes.data(), core::Bf16Bytes(sum.size())), sum);
  }
}

void DoSum(const Task& task, std::size_t begin, std::size_t end) {
  std::array<float, kBlock> block;
  const int size = static_cast<int>(task.works.size());
  for (; begin < end; begin += kBlock) {
    const absl::Span<float> sum(block.data(), std::min(kBlock, end - begin));
    Sum(task, begin, sum);
    for (int rank = 0; rank < size; ++rank) {
      const Operation& operation = task.works[static_cast<std::size_t>(rank)]->operation;
      Part part = {begin, begin + sum.size()};
      if (operation.kind == OperationKind::kReduceScatter) {
        const Part own = PartOf(operation.values.size(), rank, size);
        part = {std::max(part.begin, own.begin), std::min(part.end, own.end)};
      }
      if (part.begin >= part.end) continue;
      std::memcpy(operation.values.data() + part.begin, block.data() + (part.begin - begin),
                  (part.end - part.begin) * sizeof(float));
    }
  }
}

// [begin, end) of the values.
void Do(const Task& task, std::size_t begin, std::size_t end) {
  const Operation& first = task.first();
  const int size = static_cast<int>(task.works.size());
  switch (first.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
      DoSum(task, begin, end);
      break;
    case OperationKind::kAllGather:
      for (int from = 0; from < size; ++from) {
        const Part own = PartOf(first.values.size(), from, size);
        for (const WorkPointer& to : task.works) {
          Move(task.works[static_cast<std::size_t>(from)]->operation, to->operation, std::max(begin, own.begin),
               std::min(end, own.end));
        }
      }
      break;
    case OperationKind::kBroadcast:
      for (const WorkPointer& to : task.works) {
        Move(task.works[static_cast<std::size_t>(first.peer)]->operation, to->operation, begin, end);
      }
      break;
    case OperationKind::kSend:
    case OperationKind::kReceive:
      Move(first, task.works.back()->operation, begin, end);
      break;
  }
}

class LocalGroup {
 public:
  explicit LocalGroup(int size) : ends_(static_cast<std::size_t>(size)), order_(size) {}

  absl::StatusOr<Handle> Start(int rank, const Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    End& end = EndOf(rank);
    if (!end.broken.ok()) return end.broken;
    const Handle handle = end.next_handle++;
    const auto work = std::make_shared<Work>();
    work->operation = operation;
    end.started[handle] = work;
    const OperationShape shape = ShapeOf(operation);
    end.QueueOf(shape).push_back(work);
    std::vector<NcclOrder::Turn> turns;
    if (absl::Status status = order_.Started(rank, shape, &turns); !status.ok()) {
      BreakAll(status);
    } else if (!turns.empty()) {
      Begin(turns);
    }
    return handle;
  }

  struct Outcome {
    Operation operation;
    absl::Status status;
  };
  absl::StatusOr<Outcome> Wait(int rank, Handle handle, absl::Duration limit) {
    const auto until = MomentIn(limit);
    std::unique_lock<std::mutex> lock(mutex_);
    End& end = EndOf(rank);
    const auto found = end.started.find(handle);
    if (found == end.started.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no operation ", handle, " waits to be waited for"));
    }
    const WorkPointer work = found->second;
    while (!work->complete) {
      if (std::chrono::steady_clock::now() >= until) {
        Break(rank, absl::DeadlineExceededError(absl::StrCat("not complete within ", absl::FormatDuration(limit))),
              "gave the group up");
        // Others are at a piece of it at most.
        changed_.wait(lock, [&work] { return work->complete; });
      } else if (!tasks_.empty()) {
        Help(&lock);
      } else {
        changed_.wait_until(lock, until);
      }
    }
    end.started.erase(handle);
    return Outcome{work->operation, work->status};
  }

  void Abort(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Break(rank, absl::AbortedError("aborted"), "aborted");
  }

  // No value of it is touched afterwards.
  void Leave(int rank) {
    std::unique_lock<std::mutex> lock(mutex_);
    End& end = EndOf(rank);
    const auto all_complete = [&end] {
      return std::all_of(end.started.begin(), end.started.end(),
                         [](const auto& started) { return started.second->complete; });
    };
    if (!all_complete()) Break(rank, absl::AbortedError("left"), "left the group");
    changed_.wait(lock, all_complete);  // others are at a piece of it at most
    if (!end.broken.ok()) return;
    end.broken = absl::AbortedError("left");
    if (absl::Status status = order_.Left(rank); !status.ok()) BreakAll(status);
  }

 private:
  struct End {
    std::deque<WorkPointer>& QueueOf(const OperationShape& shape) {
      if (shape.kind == OperationKind::kSend) return sends[shape.peer];
      return shape.kind == OperationKind::kReceive ? receives[shape.peer] : rounds;
    }

    Handle next_handle = 1;
    std::map<Handle, WorkPointer> started;  // and not waited for
    std::deque<WorkPointer> rounds;         // all but messages, that not all have started
    std::map<int, std::deque<WorkPointer>> sends, receives;
    absl::Status broken;
  };

  End& EndOf(int rank) { return ends_[static_cast<std::size_t>(rank)]; }

  void Begin(const std::vector<NcclOrder::Turn>& turns) {
    auto task = std::make_shared<Task>();
    for (const NcclOrder::Turn& turn : turns) {
      std::deque<WorkPointer>& queue = EndOf(turn.rank).QueueOf(turn.shape);
      task->works.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    if (task->first().values.empty()) return Finish(*task);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  // Does a piece of the first task.
  void Help(std::unique_lock<std::mutex>* lock) {
    const std::shared_ptr<Task> task = tasks_.front();
    const std::size_t begin = task->next;
    task->next = std::min(begin + kPiece, task->first().values.size());
    if (task->next == task->first().values.size()) tasks_.pop_front();
    const std::size_t end = task->next;
    ++task->running;
    running_.push_back(task);
    lock->unlock();
    Do(*task, begin, end);
    lock->lock();
    running_.erase(std::find(running_.begin(), running_.end(), task));
    --task->running;
    const bool whole = std::find(tasks_.begin(), tasks_.end(), task) == tasks_.end();
    if (whole && task->running == 0) Finish(*task);
  }

  void Finish(const Task& task) {
    for (const WorkPointer& work : task.works) work->complete = true;
    changed_.notify_all();
  }

  void Break(int rank, const absl::Status& here, const std::string& elsewhere) {
    if (EndOf(rank).broken.ok()) EndOf(rank).broken = here;
    BreakAll(absl::UnavailableError(absl::StrCat("rank ", rank, " ", elsewhere)));
  }

  // All that are whole.
  void BreakAll(const absl::Status& status) {
    tasks_.clear();
    for (End& end : ends_) {
      if (end.broken.ok()) end.broken = status;
      for (const auto& [handle, work] : end.started) {
        if (work->complete) continue;
        work->status = end.broken;
        // Else Help says so.
        const bool runs = std::any_of(running_.begin(), running_.end(), [work = work](const auto& task) {
          return std::find(task->works.begin(), task->works.end(), work) != task->works.end();
        });
        work->complete = !runs;
      }
      end.rounds.clear();
      end.sends.clear();
      end.receives.clear();
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<End> ends_;  // by rank
  NcclOrder order_;
  std::deque<std::shared_ptr<Task>> tasks_;     // of which not all is taken
  std::vector<std::shared_ptr<Task>> running_;  // a thread each
};

class LocalCollective : public Collective {
 public:
  LocalCollective(std::shared_ptr<LocalGroup> group, int rank, int size, const std::string& view)
      : Collective(rank, size, view), group_(std::move(group)) {}
  ~LocalCollective() override { group_->Leave(rank()); }

  absl::Status Wait(Handle handle, absl::Duration limit) override {
    const absl::StatusOr<LocalGroup::Outcome> outcome = group_->Wait(rank(), handle, limit);
    if (outcome.ok()) return About(outcome->operation, outcome->status);
    return absl::Status(outcome.status().code(),
                        absl::StrCat(outcome.status().message(), ", ", DescribeMember(rank(), size(), view())));
  }

  void Abort() override { group_->Abort(rank()); }

 private:
  absl::StatusOr<Handle> Start(const Operation& operation) override {
    absl::StatusOr<Handle> handle = group_->Start(rank(), operation);
    if (!handle.ok()) return About(operation, handle.status());
    return handle;
  }

  const std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> NewLocalGroup(const std::string& view, int size) {
  const auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::unique_ptr<Collective>> ends;
  ends.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_unique<LocalCollective>(group, rank, size, view));
  }
  return ends;
}

}  // namespace downpour::collective
