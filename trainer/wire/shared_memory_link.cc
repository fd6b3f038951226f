#include "trainer/wire/shared_memory_link.h"

#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::wire {
namespace {

// Records that wait for a socket to take them: a peer that leaves so many, and what the socket holds, reads none.
constexpr std::size_t kMostQueued = 4096;

// Payloads that are used as they lie, in memory that the peer can change under whoever reads it: any bits are floats.
// Of all others something is checked before it is relied upon, so they are copied.
bool IsUsedInPlace(const core::FrameHeader& header) {
  return header.type == core::DataType::kFloat32 &&
         (header.codec == core::FrameCodec::kFp32 || header.codec == core::FrameCodec::kBf16);
}

core::Payload CopyOf(const core::Payload& payload) {
  auto bytes = std::make_shared<std::vector<std::uint8_t>>();
  bytes->reserve(payload.size());
  for (const auto& segment : payload.segments()) bytes->insert(bytes->end(), segment.begin(), segment.end());
  const absl::Span<const std::uint8_t> all(*bytes);
  return core::Payload({all}, std::move(bytes));
}

}  // namespace

// A place in the peer's region that is being read.
class SharedMemoryLink::Borrowed {
 public:
  Borrowed(std::shared_ptr<SharedMemoryLink> link, std::shared_ptr<PeerRegion> region, std::uint64_t exchange)
      : link_(std::move(link)), region_(std::move(region)), exchange_(exchange) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    LocalRecord record;
    record.purpose = RecordPurpose::kGiveBack;
    record.exchange = exchange_;
    link_->Post(std::move(record));
  }

 private:
  const std::shared_ptr<SharedMemoryLink> link_;
  const std::shared_ptr<PeerRegion> region_;
  const std::uint64_t exchange_;
};

SharedMemoryLink::SharedMemoryLink(Descriptor socket, std::unique_ptr<OwnRegion> own,
                                   std::shared_ptr<const WakeEvent> wake)
    : socket_(std::move(socket)), wake_(std::move(wake)), own_(std::move(own)) {}

std::optional<SharedMemoryLink::Outgoing> SharedMemoryLink::Prepare(RecordPurpose purpose,
                                                                    const std::vector<MessagePart>& parts) {
  Outgoing outgoing;
  for (const MessagePart& part : parts) outgoing.bytes += part.bytes.size();
  LocalRecord& record = outgoing.record;
  record.purpose = purpose;
  record.length = static_cast<std::uint32_t>(outgoing.bytes);
  std::uint8_t* out = nullptr;
  if (outgoing.bytes <= kMostBodyBytes) {
    record.body.resize(outgoing.bytes);
    out = record.body.data();
  } else {
    const std::lock_guard lock(mutex_);
    outgoing.place = own_->Take(outgoing.bytes);
    if (!outgoing.place.has_value()) return std::nullopt;
    record.offset = *outgoing.place;
    out = own_->At(*outgoing.place);
  }
  for (const MessagePart& part : parts) {
    if (!part.bytes.empty()) std::memcpy(out, part.bytes.data(), part.bytes.size());
    out += part.bytes.size();
  }
  return outgoing;
}

void SharedMemoryLink::Discard(const Outgoing& outgoing) {
  const std::lock_guard lock(mutex_);
  if (outgoing.place.has_value()) own_->GiveBack(*outgoing.place);
}

Sent SharedMemoryLink::Send(Outgoing outgoing, std::uint64_t exchange) {
  outgoing.record.exchange = exchange;
  const std::lock_guard lock(mutex_);
  const Sent sent = closed_ ? Sent::kLost : SendRecord(socket_, outgoing.record);
  if (!outgoing.place.has_value()) return sent;
  if (sent == Sent::kYes) {
    lent_.emplace(exchange, *outgoing.place);
  } else {
    own_->GiveBack(*outgoing.place);
  }
  return sent;
}

void SharedMemoryLink::Post(Outgoing outgoing, std::uint64_t exchange) {
  outgoing.record.exchange = exchange;
  const std::lock_guard lock(mutex_);
  if (outgoing.place.has_value()) lent_.emplace(exchange, *outgoing.place);
  PostLocked(std::move(outgoing.record));
}

void SharedMemoryLink::Post(LocalRecord record) {
  const std::lock_guard lock(mutex_);
  PostLocked(std::move(record));
}

void SharedMemoryLink::PostLocked(LocalRecord record) {
  if (closed_) return;
  if (queue_.empty()) {
    const Sent sent = SendRecord(socket_, record);
    if (sent == Sent::kYes) return;
    if (sent == Sent::kLost) return CloseLocked();
    wake_->Set();
  }
  queue_.push_back(std::move(record));
  if (queue_.size() > kMostQueued) CloseLocked();
}

void SharedMemoryLink::Close() {
  const std::lock_guard lock(mutex_);
  CloseLocked();
}

void SharedMemoryLink::CloseLocked() {
  if (closed_) return;
  closed_ = true;
  queue_.clear();
  shutdown(socket_.get(), SHUT_RDWR);
}

absl::Status SharedMemoryLink::Greet(const LocalRecord& record) {
  const std::lock_guard lock(mutex_);
  LocalRecord greeting = record;
  greeting.offset = own_->bytes();
  if (SendRecord(socket_, greeting, own_->descriptor()) == Sent::kYes) return absl::OkStatus();
  return absl::UnavailableError("the other end takes no greeting");
}

absl::Status SharedMemoryLink::SetPeer(Descriptor region, std::uint64_t bytes) {
  absl::StatusOr<std::shared_ptr<PeerRegion>> mapped = PeerRegion::Map(std::move(region), bytes);
  if (!mapped.ok()) return mapped.status();
  peer_ = *std::move(mapped);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ReceivedRecord>> SharedMemoryLink::Receive() {
  for (;;) {
    absl::StatusOr<std::optional<ReceivedRecord>> received = ReceiveRecord(socket_);
    if (!received.ok() || !received->has_value() || (*received)->record.purpose != RecordPurpose::kGiveBack) {
      return received;
    }
    if (absl::Status taken = TakeBack((*received)->record.exchange); !taken.ok()) return taken;
  }
}

absl::Status SharedMemoryLink::TakeBack(std::uint64_t exchange) {
  const std::lock_guard lock(mutex_);
  const auto lent = lent_.find(exchange);
  if (lent == lent_.end()) {
    return absl::DataLossError(absl::StrCat("record: exchange ", exchange, " gives back what it does not have"));
  }
  own_->GiveBack(lent->second);
  lent_.erase(lent);
  return absl::OkStatus();
}

absl::StatusOr<SharedMemoryLink::Received> SharedMemoryLink::Take(LocalRecord record) {
  Received received;
  received.bytes = record.length;
  const bool in_region = record.in_region();
  absl::Span<const std::uint8_t> bytes;
  std::shared_ptr<const void> owner;
  if (in_region) {
    if (peer_ == nullptr) return absl::DataLossError("record: a message before the greetings");
    const absl::StatusOr<absl::Span<const std::uint8_t>> found = peer_->Bytes(record.offset, record.length);
    if (!found.ok()) return found.status();
    bytes = *found;
    owner = std::make_shared<Borrowed>(shared_from_this(), peer_, record.exchange);
  } else {
    auto held = std::make_shared<std::vector<std::uint8_t>>(std::move(record.body));
    bytes = *held;
    owner = std::move(held);
  }
  absl::StatusOr<DecodedMessage> message = DecodeMessage({bytes}, owner, kLocalChecksums);
  if (!message.ok()) {
    received.frames = message.status();
    return received;
  }
  for (core::Frame& frame : message->frames) {
    if (in_region && frame.payload.size() != 0 && !IsUsedInPlace(frame.header)) frame.payload = CopyOf(frame.payload);
  }
  received.corrupt_payloads = message->corrupt_payloads;
  received.frames = std::move(message->frames);
  return received;
}

void SharedMemoryLink::Refuse(const LocalRecord& record) {
  if (!record.in_region()) return;
  LocalRecord back;
  back.purpose = RecordPurpose::kGiveBack;
  back.exchange = record.exchange;
  Post(std::move(back));
}

bool SharedMemoryLink::wants_to_write() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

void SharedMemoryLink::Flush() {
  const std::lock_guard lock(mutex_);
  while (!closed_ && !queue_.empty()) {
    const Sent sent = SendRecord(socket_, queue_.front());
    if (sent == Sent::kFull) return;
    if (sent == Sent::kLost) return CloseLocked();
    queue_.pop_front();
  }
}

}  // namespace downpour::wire
