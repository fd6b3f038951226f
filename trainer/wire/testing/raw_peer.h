#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_RAW_PEER_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_RAW_PEER_H_

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "trainer/wire/local_socket.h"
#include "trainer/wire/shared_region.h"

// The other end of a link over shared memory as a test plays it, rules kept or not.
namespace downpour::wire {

constexpr int kNotHungMilliseconds = 30000;

class RawPeer {
 public:
  explicit RawPeer(Descriptor socket) : socket_(std::move(socket)), own_(*OwnRegion::Create(1 << 20)) {}

  // As a client.
  static RawPeer Connect(const std::string& directory, const std::string& job, const std::string& address) {
    return RawPeer(*ConnectLocally(*LocalSocketPath(directory, job, address)));
  }
  // As a server: the next connection to `listener`.
  static RawPeer Accept(const Descriptor& listener) {
    pollfd polled = {listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, kNotHungMilliseconds), 1);
    return RawPeer(**AcceptLocally(listener));
  }

  OwnRegion& own() { return *own_; }
  const Descriptor& socket() const { return socket_; }

  void Hello(const std::string& job, const std::string& address) {
    LocalRecord hello = TextRecord(RecordPurpose::kHello, absl::StrCat(job, " ", address));
    hello.offset = own_->bytes();
    EXPECT_EQ(SendRecord(socket_, hello, own_->descriptor()), Sent::kYes);
  }
  void Welcome() {
    LocalRecord welcome = TextRecord(RecordPurpose::kWelcome, "");
    welcome.offset = own_->bytes();
    EXPECT_EQ(SendRecord(socket_, welcome, own_->descriptor()), Sent::kYes);
  }

  Sent Send(const LocalRecord& record, int descriptor = -1) { return SendRecord(socket_, record, descriptor); }
  void SendBytes(absl::Span<const std::uint8_t> bytes) {
    (void)send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Puts `bytes` at `offset` of the region, and says that they are a message.
  LocalRecord Message(RecordPurpose purpose, std::uint64_t exchange, std::uint64_t offset,
                      absl::Span<const std::uint8_t> bytes) {
    const auto place = own_->Take(offset + bytes.size());
    EXPECT_TRUE(place.has_value());
    std::memcpy(own_->At(offset), bytes.data(), bytes.size());
    own_->GiveBack(*place);
    LocalRecord record;
    record.purpose = purpose;
    record.exchange = exchange;
    record.offset = offset;
    record.length = static_cast<std::uint32_t>(bytes.size());
    return record;
  }

  // The next record; nullopt: the other end is gone.
  std::optional<ReceivedRecord> Receive() {
    for (;;) {
      pollfd polled = {socket_.get(), POLLIN, 0};
      if (poll(&polled, 1, kNotHungMilliseconds) != 1) {
        ADD_FAILURE() << "nothing comes";
        return std::nullopt;
      }
      auto received = ReceiveRecord(socket_);
      if (!received.ok()) return std::nullopt;
      if (received->has_value()) return std::move(**received);
    }
  }
  // Of this purpose, whatever comes before.
  std::optional<ReceivedRecord> Receive(RecordPurpose purpose) {
    std::optional<ReceivedRecord> received = Receive();
    while (received.has_value() && received->record.purpose != purpose) received = Receive();
    return received;
  }
  bool IsGone() {
    while (Receive().has_value()) {
    }
    return !testing::Test::HasFailure();
  }

 private:
  Descriptor socket_;
  std::unique_ptr<OwnRegion> own_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_RAW_PEER_H_
