#include "trainer/collective/fake_nccl_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/core/codec/bf16.h"

namespace downpour::collective {
namespace {

float Load(const char* from, std::size_t at, NcclElement element) {
  float value = 0;
  if (element == NcclElement::kFloat32) {
    std::memcpy(&value, from + at * sizeof(float), sizeof(float));
  } else {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from) + core::Bf16Bytes(at);
    core::DecodeBf16(absl::MakeConstSpan(bytes, core::Bf16Bytes(1)), {&value, 1});
  }
  return value;
}

void Store(float value, char* to, std::size_t at, NcclElement element) {
  if (element == NcclElement::kFloat32) {
    std::memcpy(to + at * sizeof(float), &value, sizeof(float));
  } else {
    core::EncodeBf16({&value, 1}, reinterpret_cast<std::uint8_t*>(to) + core::Bf16Bytes(at));
  }
}

float Add(float left, float right, NcclElement element) {
  float sum = 0;
  Store(left + right, reinterpret_cast<char*>(&sum), 0, element);
  return Load(reinterpret_cast<const char*>(&sum), 0, element);
}

// Around a ring that ends at `root`, so that the order of a sum depends on the root.
void Sum(const std::vector<FakePart*>& parts, std::size_t first, std::size_t root) {
  const NcclElement element = parts[root]->element;
  for (std::size_t i = 0; i < parts[root]->count; ++i) {
    float sum = Load(parts[(root + 1) % parts.size()]->from, first + i, element);
    for (std::size_t step = 2; step <= parts.size(); ++step) {
      sum = Add(sum, Load(parts[(root + step) % parts.size()]->from, first + i, element), element);
    }
    Store(sum, parts[root]->to, i, element);
  }
}

}  // namespace

void ExecuteTogether(const std::vector<FakePart*>& parts) {
  const FakePart& first = *parts.front();
  switch (first.kind) {
    case FakePart::Kind::kReduce:
      Sum(parts, 0, static_cast<std::size_t>(first.peer));
      break;
    case FakePart::Kind::kReduceScatter:
      for (std::size_t rank = 0; rank < parts.size(); ++rank) Sum(parts, rank * first.count, rank);
      break;
    case FakePart::Kind::kAllGather:
      for (std::size_t from = 0; from < parts.size(); ++from) {
        for (FakePart* const to : parts) std::memmove(to->to + from * first.count, parts[from]->from, first.count);
      }
      break;
    case FakePart::Kind::kBroadcast:
      for (FakePart* const to : parts) {
        std::memmove(to->to, parts[static_cast<std::size_t>(first.peer)]->from, first.count);
      }
      break;
    case FakePart::Kind::kSend:
    case FakePart::Kind::kReceive:
      break;
  }
}

void FakeNcclState::Complain(int device, const std::string& what) {
  absl::StrAppend(&complaints, "device ", device, ": ", what, "\n");
}

NcclResult FakeNcclState::PollStuck(int device) {
  ++stuck_polls[device];
  return NcclResult::kInProgress;
}

int FakeNcclState::HoursAhead(int device) {
  if (stuck_polls[device] >= kStuckPolls) {
    stuck_polls[device] = 0;
    ++ahead[device];
  }
  return ahead[device];
}

NcclResult FakeNcclState::PollComm(FakeComm* comm) {
  if (comm->error != NcclResult::kSuccess) return comm->error;
  if (comm->stuck) return PollStuck(comm->device);
  const FakeClique& clique = cliques.at(comm->clique);
  if (comm->phase == FakeComm::Phase::kForming) {
    const bool all = std::find(clique.comms.begin(), clique.comms.end(), NcclComm::kNone) == clique.comms.end();
    if (!all || !Polled(&comm->polls)) return NcclResult::kInProgress;
    comm->phase = FakeComm::Phase::kReady;
  } else if (comm->phase == FakeComm::Phase::kFinalizing) {
    for (std::size_t rank = 0; rank < clique.comms.size(); ++rank) {
      if (!clique.gone[rank] && comms.at(clique.comms[rank]).phase < FakeComm::Phase::kFinalizing) {
        return NcclResult::kInProgress;
      }
    }
    if (!Polled(&comm->polls)) return NcclResult::kInProgress;
    comm->phase = FakeComm::Phase::kFinalized;
  } else if (comm->putting) {
    if (!Polled(&comm->polls)) return NcclResult::kInProgress;
    comm->putting = false;
    FakeStream& stream = streams.at(comm->next_stream);
    stream.launches.push_back(std::move(comm->next));
    ++stream.put;
    Advance();
  }
  return NcclResult::kSuccess;
}

NcclResult FakeNcclState::Put(int device, const FakePart& part, NcclComm comm, NcclStream stream) {
  FakeGroup& group = groups[std::this_thread::get_id()];
  if (group.depth == 0) return EndGroup(device, {0, comm, stream, {part}});
  if (!group.parts.empty() && (group.comm != comm || group.stream != stream)) {
    Complain(device, "a group of calls on several communicators or streams");
    return NcclResult::kInvalidUsage;
  }
  group.comm = comm;
  group.stream = stream;
  group.parts.push_back(part);
  return NcclResult::kInProgress;
}

NcclResult FakeNcclState::EndGroup(int device, FakeGroup group) {
  if (group.parts.empty()) return NcclResult::kSuccess;
  const auto comm = comms.find(group.comm);
  if (comm == comms.end() || streams.count(group.stream) == 0) {
    Complain(device, "an operation without a communicator or stream that is there");
    return NcclResult::kInvalidArgument;
  }
  if (comm->second.phase != FakeComm::Phase::kReady || comm->second.putting) {
    Complain(device, "an operation on a communicator that is not ready");
    return NcclResult::kInvalidUsage;
  }
  if (comm->second.error != NcclResult::kSuccess) return comm->second.error;
  comm->second.putting = true;
  comm->second.polls = Polls();
  comm->second.next = {group.comm, std::move(group.parts), nullptr};
  comm->second.next_stream = group.stream;
  return comm->second.polls == 0 ? PollComm(&comm->second) : NcclResult::kInProgress;
}

NcclResult FakeNcclState::PutLocal(int device, NcclStream stream, std::function<void()> local) {
  const auto found = streams.find(stream);
  if (found == streams.end()) {
    Complain(device, "a stream that is not there is used");
    return NcclResult::kInvalidArgument;
  }
  for (const auto& [handle, comm] : comms) {
    if (comm.putting && comm.next_stream == stream)
      Complain(device, "a stream is used while NCCL puts something on it");
  }
  found->second.launches.push_back({NcclComm::kNone, {}, std::move(local)});
  ++found->second.put;
  Advance();
  return NcclResult::kSuccess;
}

void FakeNcclState::Remove(NcclComm comm, bool aborted) {
  const FakeComm& removed = comms.at(comm);
  FakeClique& clique = cliques.at(removed.clique);
  clique.gone[static_cast<std::size_t>(removed.rank)] = true;
  // The others may be told, or not.
  for (auto& [handle, other] : comms) {
    if (aborted && handle != comm && other.clique == removed.clique && random() % 2 == 0) {
      other.error = NcclResult::kRemoteError;
    }
  }
  for (auto& [handle, stream] : streams) {
    for (FakeLaunch& launch : stream.launches) {
      if (launch.comm == comm) launch = {};
    }
  }
  comms.erase(comm);
  Advance();
}

void FakeNcclState::Advance() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [handle, stream] : streams) moved = AdvanceStream(&stream) || moved;
    for (const auto& [key, clique] : cliques) {
      moved = AdvanceClique(clique) || moved;
      moved = AdvanceMessages(clique) || moved;
    }
  }
}

bool FakeNcclState::AdvanceStream(FakeStream* stream) {
  bool moved = false;
  while (!stream->launches.empty()) {
    const std::vector<FakePart>& parts = stream->launches.front().parts;
    if (!std::all_of(parts.begin(), parts.end(), [](const FakePart& part) { return part.done; })) break;
    const std::function<void()> local = std::move(stream->launches.front().local);
    stream->launches.pop_front();
    ++stream->done;
    if (local != nullptr) local();
    moved = true;
  }
  return moved;
}

FakePart* FakeNcclState::Front(NcclComm comm, const std::function<bool(const FakePart&)>& wanted) {
  for (auto& [handle, stream] : streams) {
    if (stream.launches.empty() || stream.launches.front().comm != comm) continue;
    for (FakePart& part : stream.launches.front().parts) {
      if (!part.done && wanted(part)) return &part;
    }
  }
  return nullptr;
}

bool FakeNcclState::AdvanceClique(const FakeClique& clique) {
  std::vector<FakePart*> parts;
  for (std::size_t rank = 0; rank < clique.comms.size(); ++rank) {
    if (clique.gone[rank] || clique.comms[rank] == NcclComm::kNone) return false;
    parts.push_back(Front(clique.comms[rank], [](const FakePart& part) { return !part.message(); }));
    if (parts.back() == nullptr) return false;
  }
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    if (parts[rank]->kind != parts[0]->kind || parts[rank]->count != parts[0]->count ||
        parts[rank]->peer != parts[0]->peer || parts[rank]->element != parts[0]->element) {
      // The real one would hang, or worse.
      Complain(comms.at(clique.comms[rank]).device, "the ranks of a communicator do different things");
      for (FakePart* const part : parts) part->done = true;
      return true;
    }
  }
  ExecuteTogether(parts);
  for (FakePart* const part : parts) part->done = true;
  return true;
}

bool FakeNcclState::AdvanceMessages(const FakeClique& clique) {
  for (std::size_t from = 0; from < clique.comms.size(); ++from) {
    for (std::size_t to = 0; to < clique.comms.size(); ++to) {
      if (clique.gone[from] || clique.gone[to]) continue;
      FakePart* const send = Front(clique.comms[from], [to](const FakePart& part) {
        return part.kind == FakePart::Kind::kSend && part.peer == static_cast<int>(to);
      });
      FakePart* const receive = Front(clique.comms[to], [from](const FakePart& part) {
        return part.kind == FakePart::Kind::kReceive && part.peer == static_cast<int>(from);
      });
      if (send == nullptr || receive == nullptr) continue;
      if (send->count == receive->count) {
        std::memcpy(receive->to, send->from, send->count);
      } else {
        Complain(comms.at(clique.comms[to]).device, "a message is not as long as what is received");
      }
      send->done = true;
      receive->done = true;
      return true;
    }
  }
  return false;
}

}  // namespace downpour::collective
