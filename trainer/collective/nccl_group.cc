#include "trainer/collective/nccl_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

using Clock = std::chrono::steady_clock;

// How often a limit is looked at that goes by a clock of which nobody can wait for a time.
constexpr std::chrono::milliseconds kLookPeriod(5);

Clock::duration Bounded(absl::Duration limit) {
  return absl::ToChronoNanoseconds(std::clamp(limit, absl::ZeroDuration(), absl::Hours(24)));
}

}  // namespace

NcclGroup::NcclGroup(NcclGroupOptions options)
    : options_(std::move(options)),
      notes_(std::move(options_.peers), std::move(options_.wake)),
      communicator_(options_.api, options_.now),
      order_(options_.size) {
  thread_ = std::thread([this] { Run(); });
}

NcclGroup::~NcclGroup() {
  Leave();
  thread_.join();
}

absl::Status NcclGroup::AwaitFormed() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return formed_ || ended_; });
  return formed_ ? absl::OkStatus() : broken_;
}

absl::StatusOr<Handle> NcclGroup::Start(const Operation& operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!broken_.ok()) return broken_;
  if (leaving_) return absl::AbortedError("another group is formed");
  const Handle handle = next_handle_++;
  auto work = std::make_shared<Work>();
  work->operation = operation;
  started_[handle] = work;
  incomplete_.insert(work);
  inbox_.push_back(std::move(work));
  notes_.Wake();
  return handle;
}

absl::StatusOr<NcclGroup::Outcome> NcclGroup::Wait(Handle handle, absl::Duration limit) {
  const auto until = options_.now() + Bounded(limit);
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = started_.find(handle);
  if (found == started_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("no operation ", handle, " waits to be waited for"));
  }
  const WorkPointer work = found->second;
  started_.erase(found);
  while (!work->complete) {
    const auto left = until - options_.now();
    if (left <= Clock::duration::zero()) {
      BreakLocked(absl::DeadlineExceededError(absl::StrCat("not complete within ", absl::FormatDuration(limit))));
      // The thread waits for no other rank, and for the device no longer than stop_limit.
      changed_.wait(lock, [&work] { return work->complete; });
      break;
    }
    changed_.wait_until(lock, Clock::now() + std::min<Clock::duration>(left, kLookPeriod));
  }
  return Outcome{work->operation, work->status};
}

void NcclGroup::Break(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  BreakLocked(status);
}

void NcclGroup::BreakLocked(const absl::Status& status) {
  if (broken_.ok()) broken_ = status;
  notes_.Wake();
}

void NcclGroup::Retire() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RetireLocked();
}

void NcclGroup::RetireLocked() {
  leaving_ = true;
  if (!incomplete_.empty()) BreakLocked(absl::AbortedError("left"));
  notes_.Wake();
}

void NcclGroup::Leave() {
  std::unique_lock<std::mutex> lock(mutex_);
  RetireLocked();
  if (!broken_.ok()) changed_.wait(lock, [this] { return ended_; });
}

bool NcclGroup::AwaitEnd(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, Clock::now() + limit, [this] { return ended_; });
}

absl::Status NcclGroup::device() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device_;
}

void NcclGroup::Run() {
  const absl::Status status = Form();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status.ok()) {
      formed_ = true;
    } else {
      BreakLocked(status);
    }
    changed_.notify_all();
  }
  while (Turn()) {
  }
  End();
}

// The communicator of this rank, for which all others form theirs.
absl::Status NcclGroup::Form() {
  absl::Status status = NcclDone(options_.api, "cudaSetDevice", options_.api->UseDevice());
  if (!status.ok()) return status;
  NcclUniqueId id = {};
  if (status = ShareId(&id); !status.ok()) return status;
  const auto until = options_.now() + (options_.patience.until - Clock::now());
  if (status = communicator_.Begin(options_.rank, options_.size, id); !status.ok()) return status;
  for (;;) {
    const absl::StatusOr<bool> formed = communicator_.Form();
    if (!formed.ok()) return formed.status();
    if (*formed) return absl::OkStatus();
    if (options_.patience.stop != nullptr && options_.patience.stop->HasBeenNotified()) {
      return absl::AbortedError("stopped");
    }
    if (options_.now() >= until)
      return absl::DeadlineExceededError("NCCL did not connect all members within the limit");
    notes_.Exchange(kNcclLookPeriod);
    // NCCL tells nobody that a member is lost; and who is done already may begin.
    while (std::optional<NcclHeard> heard = notes_.Take()) {
      if (!heard->note.has_value()) {
        return absl::UnavailableError(absl::StrCat("rank ", heard->from, " is lost: ", heard->lost));
      }
      early_.push_back(*std::move(heard));
    }
  }
}

absl::Status NcclGroup::ShareId(NcclUniqueId* id) {
  if (options_.rank != 0) {
    absl::Status received = ReceiveAll(notes_.socket(0), id->data(), id->size(), options_.patience);
    return absl::Status(received.code(), absl::StrCat("the id of rank 0: ", received.message()));
  }
  absl::Status status = NcclDone(options_.api, "ncclGetUniqueId", options_.api->GetUniqueId(id));
  for (int rank = 1; rank < options_.size && status.ok(); ++rank) {
    status = SendAll(notes_.socket(rank), id->data(), id->size(), options_.patience);
  }
  return status;
}

// False: it is over.
bool NcclGroup::Turn() {
  std::vector<WorkPointer> started;
  bool leaving = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return false;
    started.swap(inbox_);
    leaving = leaving_;
  }
  for (WorkPointer& work : started) Announce(std::move(work));
  for (; !early_.empty(); early_.pop_front()) Hear(early_.front());
  while (const std::optional<NcclHeard> heard = notes_.Take()) Hear(*heard);
  const absl::StatusOr<int> complete = communicator_.Advance();
  if (complete.ok()) {
    Complete(*complete);
  } else {
    Break(complete.status());
    return false;
  }
  std::chrono::microseconds wait(-1);
  if (leaving) {
    if (!said_goodbye_) {
      said_goodbye_ = true;
      leave_until_ = options_.now() + Bounded(options_.leave_limit);
      NcclNote goodbye;
      goodbye.type = NcclNote::Type::kGoodbye;
      options_.rank == 0 ? Left(0) : notes_.Send(0, goodbye);
    }
    if (all_left_) return false;
    if (options_.now() >= leave_until_) {
      Break(absl::DeadlineExceededError("others have not left yet"));
      return false;
    }
    wait = kLookPeriod;
  }
  notes_.Exchange(communicator_.busy() ? kNcclLookPeriod : wait);
  return true;
}

void NcclGroup::Announce(WorkPointer work) {
  const OperationShape shape = ShapeOf(work->operation);
  if (shape.kind == OperationKind::kSend) {
    sends_[shape.peer].push_back(std::move(work));
  } else if (shape.kind == OperationKind::kReceive) {
    receives_[shape.peer].push_back(std::move(work));
  } else {
    rounds_.push_back(std::move(work));
  }
  if (options_.rank == 0) {
    Started(0, shape);
  } else {
    notes_.Send(0, {NcclNote::Type::kStarted, shape});
  }
}

void NcclGroup::Hear(const NcclHeard& heard) {
  if (!heard.note.has_value()) {
    // Once this rank is leaving, rank 0 knows whether the others are too, or are lost.
    if (said_goodbye_ && options_.rank != 0 && heard.from != 0) return;
    if (!all_left_) Break(absl::UnavailableError(absl::StrCat("rank ", heard.from, " is lost: ", heard.lost)));
    return;
  }
  const OperationShape& shape = heard.note->shape;
  if (options_.rank == 0) {
    if (heard.note->type == NcclNote::Type::kStarted) return Started(heard.from, shape);
    if (heard.note->type == NcclNote::Type::kGoodbye) return Left(heard.from);
  } else if (heard.from == 0) {
    switch (heard.note->type) {
      case NcclNote::Type::kTurn:
        return TakeTurn(shape);
      case NcclNote::Type::kDisagree:
        return Break(absl::InternalError(absl::StrCat("the members disagree: one does ", Describe(shape))));
      case NcclNote::Type::kMissing:
        return Break(absl::UnavailableError(absl::StrCat("a member left the group before a ", Describe(shape))));
      case NcclNote::Type::kAllLeft:
        all_left_ = true;
        return;
      case NcclNote::Type::kStarted:
      case NcclNote::Type::kGoodbye:
        break;
    }
  }
  Break(absl::InternalError(absl::StrCat("rank ", heard.from, " sent a note that is not its to send")));
}

void NcclGroup::Started(int rank, const OperationShape& shape) {
  std::vector<NcclOrder::Turn> turns;
  if (absl::Status status = order_.Started(rank, shape, &turns); !status.ok()) return Tell(status, shape);
  for (const NcclOrder::Turn& turn : turns) {
    if (turn.rank == 0) {
      TakeTurn(turn.shape);
    } else {
      notes_.Send(turn.rank, {NcclNote::Type::kTurn, turn.shape});
    }
  }
}

void NcclGroup::Left(int rank) {
  if (absl::Status status = order_.Left(rank); !status.ok()) return Tell(status, {});
  if (!order_.all_left()) return;
  all_left_ = true;
  for (int other = 1; other < options_.size; ++other) notes_.Send(other, {NcclNote::Type::kAllLeft, {}});
}

// The others why rank 0 breaks.
void NcclGroup::Tell(const absl::Status& status, const OperationShape& shape) {
  const NcclNote::Type type = absl::IsInternal(status) ? NcclNote::Type::kDisagree : NcclNote::Type::kMissing;
  for (int other = 1; other < options_.size; ++other) notes_.Send(other, {type, shape});
  Break(status);
}

void NcclGroup::TakeTurn(const OperationShape& shape) {
  std::deque<WorkPointer>* queue = &rounds_;
  if (shape.kind == OperationKind::kSend) queue = &sends_[shape.peer];
  if (shape.kind == OperationKind::kReceive) queue = &receives_[shape.peer];
  if (queue->empty() || !(ShapeOf(queue->front()->operation) == shape)) {
    return Break(absl::InternalError(absl::StrCat("it is the turn of a ", Describe(shape), ", which was not started")));
  }
  communicator_.Add(queue->front()->operation);
  flying_.push_back(std::move(queue->front()));
  queue->pop_front();
}

void NcclGroup::Complete(int count) {
  if (count == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (; count > 0; --count) {
    flying_.front()->complete = true;
    incomplete_.erase(flying_.front());
    flying_.pop_front();
  }
  changed_.notify_all();
}

void NcclGroup::End() {
  bool in_peace = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    in_peace = broken_.ok();
    if (in_peace) broken_ = absl::AbortedError("left");
  }
  // The others first: they are to abort as well, whatever becomes of this rank's device.
  if (!in_peace) notes_.Close();
  const absl::Status device =
      in_peace ? communicator_.Leave(options_.leave_limit) : communicator_.Abort(options_.stop_limit);
  notes_.Close();
  // Nothing reads or writes values from here on.
  const std::lock_guard<std::mutex> lock(mutex_);
  device_ = device;
  for (const WorkPointer& work : incomplete_) {
    work->complete = true;
    work->status = device.ok()
                       ? broken_
                       : absl::Status(broken_.code(), absl::StrCat(broken_.message(), "; and ", device.message(),
                                                                   ": its values may still change"));
  }
  incomplete_.clear();
  ended_ = true;
  changed_.notify_all();
}

}  // namespace downpour::collective
