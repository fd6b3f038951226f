#include "trainer/collective/fake_nccl.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/collective/fake_nccl_state.h"
#include "trainer/core/codec/bf16.h"

namespace downpour::collective {
namespace {

std::uint64_t Number(NcclComm comm) { return static_cast<std::uint64_t>(comm); }

const char* Bytes(const void* from) { return static_cast<const char*>(from); }

}  // namespace

FakeNccl::FakeNccl(std::uint64_t seed) : state_(std::make_unique<FakeNcclState>(seed)) {}

FakeNccl::~FakeNccl() {
  for (const auto& [memory, bytes] : state_->memory) delete[] static_cast<char*>(memory);
}

std::string FakeNccl::Complaints() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->complaints;
}

std::string FakeNccl::Leaks() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::string leaks;
  for (const auto& [handle, comm] : state_->comms)
    absl::StrAppend(&leaks, "communicator of device ", comm.device, "\n");
  for (const auto& [handle, stream] : state_->streams)
    absl::StrAppend(&leaks, "stream of device ", stream.device, "\n");
  for (const auto& [handle, event] : state_->events) absl::StrAppend(&leaks, "event of device ", event.device, "\n");
  for (const auto& [memory, bytes] : state_->memory) absl::StrAppend(&leaks, bytes, " bytes of memory\n");
  for (const auto& [thread, group] : state_->groups) {
    if (group.depth > 0) absl::StrAppend(&leaks, "group of calls that was not ended\n");
  }
  return leaks;
}

FakeNcclDevice::FakeNcclDevice(FakeNccl* nccl)
    : state_(nccl->state_.get()), number_([this] {
        const std::lock_guard<std::mutex> lock(state_->mutex);
        return state_->devices++;
      }()) {}

FakeNcclDevice::~FakeNcclDevice() = default;

void FakeNcclDevice::Inject(const FakeNcclFault& fault) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  fault_ = fault;
  faulty_ = true;
}

std::chrono::steady_clock::time_point FakeNcclDevice::Now() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return std::chrono::steady_clock::now() + std::chrono::hours(state_->HoursAhead(number_));
}

std::int64_t FakeNcclDevice::calls() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return calls_;
}

std::string FakeNcclDevice::failed_call() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return failed_call_;
}

std::int64_t FakeNcclDevice::Count(const std::string& call) const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const auto found = counts_.find(call);
  return found == counts_.end() ? 0 : found->second;
}

const FakeNcclFault* FakeNcclDevice::Begin(const std::string& call, Polls polls, std::uint64_t handle) {
  ++counts_[call];
  if (call != "UseDevice" && threads_.count(std::this_thread::get_id()) == 0) {
    state_->Complain(number_, absl::StrCat(call, " on a thread that did not say which device it uses"));
  }
  // As often as nothing else was called in between: how often it is polled is nobody's to say.
  if (polls == Polls::kNo) {
    ++changes_;
    state_->stuck_polls[number_] = 0;
  } else if (polls == Polls::kComm) {
    handle = changes_;
  }
  if (polls != Polls::kNo && !polled_.emplace(std::make_pair(polls, handle), calls_ + 1).second) return nullptr;
  ++calls_;
  if (!faulty_ || fault_.call != calls_ || counts_["UseDevice"] > 1) return nullptr;
  failed_call_ = call;
  return &fault_;
}

namespace {

NcclResult ResultOf(const FakeNcclFault& fault) {
  switch (fault.kind) {
    case FakeNcclFault::Kind::kError:
      return NcclResult::kUnhandledCudaError;
    case FakeNcclFault::Kind::kRemote:
      return NcclResult::kRemoteError;
    case FakeNcclFault::Kind::kNever:
      break;
  }
  return NcclResult::kInProgress;
}

}  // namespace

NcclResult FakeNcclDevice::Give(const std::string& call, const std::function<NcclResult()>& body) {
  if (hook_ != nullptr) hook_(call);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const FakeNcclFault* const fault = Begin(call, Polls::kNo, 0);
  return fault != nullptr ? ResultOf(*fault) : body();
}

NcclResult FakeNcclDevice::GiveBack(const std::string& call, NcclComm comm, const std::function<void()>& body) {
  if (comm != NcclComm::kNone) {
    return OnComm(call, comm, [&body] {
      body();
      return NcclResult::kSuccess;
    });
  }
  if (hook_ != nullptr) hook_(call);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const FakeNcclFault* const fault = Begin(call, Polls::kNo, 0);
  body();
  return fault != nullptr ? ResultOf(*fault) : NcclResult::kSuccess;
}

// A thread is inside while the lock is not held, so that another can be found there.
NcclResult FakeNcclDevice::OnComm(const std::string& call, NcclComm comm, const std::function<NcclResult()>& body) {
  const bool gives_back = call == "CommAbort" || call == "CommDestroy";
  const auto missing = [this, &call] {
    state_->Complain(number_, absl::StrCat(call, " on a communicator that was given back"));
    return NcclResult::kInvalidArgument;
  };
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    const auto found = state_->comms.find(comm);
    if (found == state_->comms.end()) return missing();
    if (++found->second.inside > 1) state_->Complain(number_, absl::StrCat(call, ": two threads in one communicator"));
  }
  if (hook_ != nullptr) hook_(call);
  std::this_thread::yield();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const auto found = state_->comms.find(comm);
  if (found == state_->comms.end()) return missing();
  --found->second.inside;
  const FakeNcclFault* const fault = Begin(call, call == "AsyncError" ? Polls::kComm : Polls::kNo, Number(comm));
  if (fault == nullptr) return body();
  if (gives_back) {
    body();
  } else if (fault->kind == FakeNcclFault::Kind::kNever) {
    found->second.stuck = true;
  }
  return ResultOf(*fault);
}

NcclResult FakeNcclDevice::Address(std::string* address) {
  *address = address_.empty() ? absl::StrCat("device ", number_) : address_;
  return NcclResult::kSuccess;
}

NcclResult FakeNcclDevice::UseDevice() {
  return Give("UseDevice", [this] {
    threads_.insert(std::this_thread::get_id());
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::GetUniqueId(NcclUniqueId* id) {
  return Give("GetUniqueId", [this, id] {
    id->fill(0);
    std::memcpy(id->data(), &state_->next, sizeof(state_->next));
    ++state_->next;
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank) {
  if (hook_ != nullptr) hook_("CommInitRank");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  *comm = NcclComm::kNone;
  const FakeNcclFault* const fault = Begin("CommInitRank", Polls::kNo, 0);
  const bool fails = fault != nullptr && fault->kind != FakeNcclFault::Kind::kNever;
  // A communicator may be there after an error, and may not.
  if (fails && fault->call % 2 == 0) return ResultOf(*fault);
  for (const auto& [handle, other] : state_->comms) {
    if (other.device == number_) state_->Complain(number_, "two communicators at once");
  }
  const std::string key(id.begin(), id.end());
  FakeClique& clique = state_->cliques[key];
  const std::size_t at = static_cast<std::size_t>(rank);
  if (clique.comms.empty()) {
    clique.comms.resize(static_cast<std::size_t>(size));
    clique.gone.resize(clique.comms.size());
  }
  if (at >= clique.comms.size() || clique.comms[at] != NcclComm::kNone) {
    state_->Complain(number_, "a unique id was used twice");
    return NcclResult::kInvalidArgument;
  }
  *comm = static_cast<NcclComm>(state_->next++);
  FakeComm& made = state_->comms[*comm];
  made.device = number_;
  made.clique = key;
  made.rank = rank;
  made.polls = state_->Polls();
  if (!fails) clique.comms[at] = *comm;
  if (fails) made.error = ResultOf(*fault);
  made.stuck = fault != nullptr && !fails;
  return fails ? made.error : NcclResult::kInProgress;
}

NcclResult FakeNcclDevice::AsyncError(NcclComm comm) {
  return OnComm("AsyncError", comm, [this, comm] { return state_->PollComm(&state_->comms.at(comm)); });
}

NcclResult FakeNcclDevice::CommFinalize(NcclComm comm) {
  return OnComm("CommFinalize", comm, [this, comm] {
    FakeComm& finalized = state_->comms.at(comm);
    if (finalized.phase != FakeComm::Phase::kReady || finalized.putting) {
      state_->Complain(number_, "CommFinalize on a communicator that is not ready");
      return NcclResult::kInvalidUsage;
    }
    finalized.phase = FakeComm::Phase::kFinalizing;
    finalized.polls = state_->Polls();
    return NcclResult::kInProgress;
  });
}

NcclResult FakeNcclDevice::CommDestroy(NcclComm comm) {
  return GiveBack("CommDestroy", comm, [this, comm] {
    if (state_->comms.at(comm).phase != FakeComm::Phase::kFinalized) {
      state_->Complain(number_, "CommDestroy of a communicator that was not finalized");
    }
    state_->Remove(comm, false);
  });
}

NcclResult FakeNcclDevice::CommAbort(NcclComm comm) {
  return GiveBack("CommAbort", comm, [this, comm] { state_->Remove(comm, true); });
}

NcclResult FakeNcclDevice::GroupStart() {
  return Give("GroupStart", [this] {
    ++state_->groups[std::this_thread::get_id()].depth;
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::GroupEnd() {
  NcclComm comm = NcclComm::kNone;
  FakeGroup group;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    FakeGroup& open = state_->groups[std::this_thread::get_id()];
    if (open.depth != 1) state_->Complain(number_, "GroupEnd without a group of calls");
    comm = open.comm;
    group = std::exchange(open, FakeGroup());
  }
  const auto end = [this, &group] { return state_->EndGroup(number_, group); };
  return comm == NcclComm::kNone ? Give("GroupEnd", end) : OnComm("GroupEnd", comm, end);
}

NcclResult FakeNcclDevice::Reduce(const void* from, void* to, std::size_t count, NcclElement element, int root,
                                  NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kReduce, Bytes(from), static_cast<char*>(to), count, element, root};
  return OnComm("Reduce", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::ReduceScatter(const void* from, void* to, std::size_t count, NcclElement element,
                                         NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kReduceScatter, Bytes(from), static_cast<char*>(to), count, element};
  return OnComm("ReduceScatter", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::AllGather(const void* from, void* to, std::size_t bytes, NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kAllGather, Bytes(from), static_cast<char*>(to), bytes};
  return OnComm("AllGather", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::Broadcast(void* values, std::size_t bytes, int root, NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kBroadcast, Bytes(values), static_cast<char*>(values), bytes,
                         NcclElement::kFloat32,      root};
  return OnComm("Broadcast", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::Send(const void* from, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kSend, Bytes(from), nullptr, bytes, NcclElement::kFloat32, peer};
  return OnComm("Send", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::Receive(void* to, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) {
  const FakePart part = {FakePart::Kind::kReceive, nullptr, static_cast<char*>(to), bytes, NcclElement::kFloat32, peer};
  return OnComm("Receive", comm, [&] { return state_->Put(number_, part, comm, stream); });
}

NcclResult FakeNcclDevice::StreamCreate(NcclStream* stream) {
  return Give("StreamCreate", [this, stream] {
    *stream = static_cast<NcclStream>(state_->next++);
    state_->streams[*stream].device = number_;
    state_->streams[*stream].polls = state_->Polls();
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::StreamDestroy(NcclStream stream) {
  return GiveBack("StreamDestroy", NcclComm::kNone, [this, stream] {
    const auto found = state_->streams.find(stream);
    if (found == state_->streams.end()) return state_->Complain(number_, "StreamDestroy of what was given back");
    for (const FakeLaunch& launch : found->second.launches) {
      if (launch.local != nullptr) launch.local();
    }
    state_->streams.erase(found);
  });
}

NcclResult FakeNcclDevice::StreamQuery(NcclStream stream) {
  if (hook_ != nullptr) hook_("StreamQuery");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const FakeNcclFault* const fault = Begin("StreamQuery", Polls::kStream, static_cast<std::uint64_t>(stream));
  const auto found = state_->streams.find(stream);
  if (found == state_->streams.end()) {
    state_->Complain(number_, "StreamQuery of what was given back");
    return NcclResult::kInvalidArgument;
  }
  if (fault != nullptr && fault->kind != FakeNcclFault::Kind::kNever) return ResultOf(*fault);
  if (fault != nullptr) found->second.stuck = true;
  if (found->second.stuck) return state_->PollStuck(number_);
  const bool done = found->second.launches.empty() && FakeNcclState::Polled(&found->second.polls);
  return done ? NcclResult::kSuccess : NcclResult::kInProgress;
}

NcclResult FakeNcclDevice::EventCreate(NcclEvent* event) {
  return Give("EventCreate", [this, event] {
    *event = static_cast<NcclEvent>(state_->next++);
    state_->events[*event].device = number_;
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::EventDestroy(NcclEvent event) {
  return GiveBack("EventDestroy", NcclComm::kNone, [this, event] {
    if (state_->events.erase(event) == 0) state_->Complain(number_, "EventDestroy of what was given back");
  });
}

NcclResult FakeNcclDevice::EventRecord(NcclEvent event, NcclStream stream) {
  return Give("EventRecord", [this, event, stream] {
    const auto found = state_->events.find(event);
    if (found == state_->events.end()) {
      state_->Complain(number_, "EventRecord of what was given back");
      return NcclResult::kInvalidArgument;
    }
    const NcclResult put = state_->PutLocal(number_, stream, nullptr);
    if (put != NcclResult::kSuccess) return put;
    found->second.stream = stream;
    found->second.at = state_->streams.at(stream).put;
    found->second.polls = state_->Polls();
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::EventQuery(NcclEvent event) {
  if (hook_ != nullptr) hook_("EventQuery");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const FakeNcclFault* const fault = Begin("EventQuery", Polls::kEvent, static_cast<std::uint64_t>(event));
  const auto found = state_->events.find(event);
  if (found == state_->events.end() || state_->streams.count(found->second.stream) == 0) {
    state_->Complain(number_, "EventQuery of what was given back, or was not recorded");
    return NcclResult::kInvalidArgument;
  }
  if (fault != nullptr && fault->kind != FakeNcclFault::Kind::kNever) return ResultOf(*fault);
  if (fault != nullptr) found->second.stuck = true;
  if (found->second.stuck) return state_->PollStuck(number_);
  const bool done = state_->streams.at(found->second.stream).done >= found->second.at;
  return done && FakeNcclState::Polled(&found->second.polls) ? NcclResult::kSuccess : NcclResult::kInProgress;
}

NcclResult FakeNcclDevice::Allocate(void** memory, std::size_t bytes, NcclStream stream) {
  return Give("Allocate", [this, memory, bytes, stream] {
    const NcclResult put = state_->PutLocal(number_, stream, nullptr);
    if (put != NcclResult::kSuccess) return put;
    *memory = new char[bytes];
    state_->memory[*memory] = bytes;
    return NcclResult::kSuccess;
  });
}

NcclResult FakeNcclDevice::Free(void* memory, NcclStream stream) {
  return GiveBack("Free", NcclComm::kNone, [this, memory, stream] {
    if (state_->memory.erase(memory) == 0) return state_->Complain(number_, "Free of what was given back");
    state_->PutLocal(number_, stream, [memory] { delete[] static_cast<char*>(memory); });
  });
}

NcclResult FakeNcclDevice::Round(const float* from, void* to, std::size_t count, NcclStream stream) {
  return Give("Round", [&] {
    return state_->PutLocal(number_, stream, [from, to, count] {
      core::EncodeBf16({from, count}, static_cast<std::uint8_t*>(to));
    });
  });
}

NcclResult FakeNcclDevice::Widen(const void* from, float* to, std::size_t count, NcclStream stream) {
  return Give("Widen", [&] {
    return state_->PutLocal(number_, stream, [from, to, count] {
      const auto* const bytes = static_cast<const std::uint8_t*>(from);
      core::DecodeBf16(absl::MakeConstSpan(bytes, core::Bf16Bytes(count)), {to, count});
    });
  });
}

}  // namespace downpour::collective
