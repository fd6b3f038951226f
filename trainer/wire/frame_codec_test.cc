#include "trainer/wire/frame_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/wire/crc32c.h"

namespace downpour::wire {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;
using Segments = std::vector<absl::Span<const std::uint8_t>>;

constexpr std::size_t kHeaderCrcAt = 16;

// Cuts `bytes` anywhere, empty segments included.
Segments Cut(absl::Span<const std::uint8_t> bytes, std::size_t largest, std::mt19937_64& random) {
  Segments segments;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), random() % (largest + 1));
    segments.push_back(bytes.first(size));
    bytes.remove_prefix(size);
  }
  return segments;
}

Bytes Flatten(absl::Span<const absl::Span<const std::uint8_t>> segments) {
  Bytes bytes;
  for (const auto& segment : segments) bytes.insert(bytes.end(), segment.begin(), segment.end());
  return bytes;
}

Bytes Encode(const Frames& frames) {
  const auto parts = EncodeMessage(frames);
  EXPECT_TRUE(parts.ok()) << parts.status();
  Bytes bytes;
  if (!parts.ok()) return bytes;
  for (const MessagePart& part : *parts) bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
  return bytes;
}

absl::StatusOr<DecodedMessage> Decode(const Bytes& bytes) {
  return DecodeMessage({absl::MakeConstSpan(bytes)}, nullptr);
}

core::Frame RandomFrame(std::mt19937_64& random, std::size_t largest_payload) {
  core::Frame frame;
  core::FrameHeader& header = frame.header;
  header.kind = static_cast<core::FrameKind>(1 + random() % 7);
  header.status = header.kind == core::FrameKind::kReply ? static_cast<core::ReplyStatus>(1 + random() % 11)
                                                         : core::ReplyStatus::kNone;
  header.record = header.kind == core::FrameKind::kRecord ? static_cast<core::RecordKind>(1 + random() % 5)
                                                          : core::RecordKind::kNone;
  header.replica = random();
  header.sequence = random();
  header.learning_rate = std::ldexp(static_cast<double>(random()), -64);
  header.type = static_cast<core::DataType>(random() % 2);
  header.codec = static_cast<core::FrameCodec>(random() % 6);
  header.verdict = static_cast<core::Verdict>(random() % 3);
  header.want_value = random() % 2 == 0;
  header.begins_update = random() % 2 == 0;
  header.clock = random();
  header.loss = std::ldexp(static_cast<double>(random()), -32);
  header.want_bf16 = random() % 2 == 0;
  for (auto& byte : header.job_uid) byte = static_cast<std::uint8_t>(random());
  header.generation = random();
  header.incarnation = static_cast<std::uint32_t>(random());
  header.epoch = static_cast<std::uint32_t>(random());
  header.session = random();
  header.cut = static_cast<std::uint32_t>(random());
  header.slice = static_cast<std::uint32_t>(random());
  header.update = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()),
                   static_cast<std::uint32_t>(random())};
  header.version = random();
  header.elements = static_cast<std::uint32_t>(random());
  header.factor = static_cast<float>(random() % 1025) / 1024;
  const std::size_t elements = random() % 3 == 0 ? 0 : random() % (largest_payload / sizeof(float) + 1);
  const bool may_have_bytes = header.kind == core::FrameKind::kCopy || header.record == core::RecordKind::kVectors;
  if (may_have_bytes && random() % 2 == 0) {
    header.type = core::DataType::kBytes;
    header.codec = core::FrameCodec::kNone;
    header.elements = static_cast<std::uint32_t>(elements);
    auto bytes = std::make_shared<Bytes>(elements);
    for (auto& byte : *bytes) byte = static_cast<std::uint8_t>(random());
    frame.payload = core::Payload(Cut(*bytes, bytes->size(), random), bytes);
  } else if (elements != 0) {
    header.type = core::DataType::kFloat32;
    header.codec = static_cast<core::FrameCodec>(1 + random() % 5);
    header.elements = static_cast<std::uint32_t>(elements);
    auto bytes = std::make_shared<Bytes>(core::EncodedBytes(header.codec, 0.3, elements));
    for (auto& byte : *bytes) byte = static_cast<std::uint8_t>(random());
    frame.payload = core::Payload(Cut(*bytes, bytes->size(), random), bytes);
  }
  return frame;
}

Frames RandomFrames(std::mt19937_64& random, std::size_t most, std::size_t largest_payload) {
  Frames frames;
  for (std::size_t i = random() % (most + 1); i != 0; --i) frames.push_back(RandomFrame(random, largest_payload));
  return frames;
}

void ExpectSameHeader(const core::FrameHeader& a, const core::FrameHeader& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.codec, b.codec);
  EXPECT_EQ(a.verdict, b.verdict);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.want_value, b.want_value);
  EXPECT_EQ(a.begins_update, b.begins_update);
  EXPECT_EQ(a.clock, b.clock);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.want_bf16, b.want_bf16);
  EXPECT_EQ(a.job_uid, b.job_uid);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.incarnation, b.incarnation);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.session, b.session);
  EXPECT_EQ(a.cut, b.cut);
  EXPECT_EQ(a.slice, b.slice);
  EXPECT_EQ(a.update, b.update);
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.record, b.record);
  EXPECT_EQ(a.replica, b.replica);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
}

void ExpectSameFrame(const core::Frame& a, const core::Frame& b) {
  ExpectSameHeader(a.header, b.header);
  EXPECT_EQ(Flatten(a.payload.segments()), Flatten(b.payload.segments()));
}

void ExpectSame(const Frames& a, const Frames& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ExpectSameFrame(a[i], b[i]);
}

core::Frame SmallPush() {
  static const std::vector<float> values = {1.0f, -2.0f, 3.5f};
  core::Frame frame;
  frame.header.kind = core::FrameKind::kPush;
  frame.header.type = core::DataType::kFloat32;
  frame.header.codec = core::FrameCodec::kFp32;
  frame.header.elements = 3;
  frame.payload = core::Payload::OfFloats(values, nullptr);
  return frame;
}

core::Frame SmallDescription() {
  core::Frame frame;
  frame.header.kind = core::FrameKind::kCopy;
  frame.header.type = core::DataType::kBytes;
  frame.header.elements = 5;
  frame.payload = core::OwningPayload({1, 2, 3, 4, 5});
  return frame;
}

TEST(FrameCodecTest, RoundTripUnderAnySegmentation) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Frames frames = RandomFrames(random, 12, seed % 2 == 0 ? 64 : 20'000);
    const auto bytes = std::make_shared<const Bytes>(Encode(frames));
    const auto decoded = DecodeMessage(Cut(*bytes, seed % 3 == 0 ? 9 : 5000, random), bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->corrupt_payloads, 0u);
    ExpectSame(frames, decoded->frames);
    for (const core::Frame& frame : decoded->frames) {
      if (frame.payload.size() != 0) {
        EXPECT_EQ(frame.payload.owner(), bytes);
      }
      for (const auto& segment : frame.payload.segments()) {
        EXPECT_GE(segment.data(), bytes->data()) << "the payload was copied";
        EXPECT_LE(segment.data() + segment.size(), bytes->data() + bytes->size());
      }
    }
  }
}

TEST(FrameCodecTest, FloatsSurviveCutsInsideThem) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<float> values(1 + random() % 3000);
    for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) / 1024.0f;
    core::Frame frame = SmallPush();
    frame.header.elements = static_cast<std::uint32_t>(values.size());
    frame.payload = core::Payload::OfFloats(values, nullptr);
    const Bytes bytes = Encode({frame});
    const auto decoded = DecodeMessage(Cut(bytes, 1 + random() % 200, random), nullptr);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    std::vector<float> found;
    decoded->frames.at(0).payload.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      ASSERT_EQ(first, found.size());
      found.insert(found.end(), run.begin(), run.end());
    });
    ASSERT_EQ(found, values) << "seed " << seed;
  }
}

TEST(FrameCodecTest, LargePayloadsAreReferredToAndSmallOnesShareAPart) {
  const auto large = std::make_shared<const std::vector<float>>(kCopiedPayloadBytes);
  core::Frame big = SmallPush();
  big.header.elements = static_cast<std::uint32_t>(large->size());
  big.payload = core::Payload::OfFloats(*large, large);
  const auto parts = EncodeMessage({SmallPush(), SmallPush(), big, SmallPush()});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].bytes.size(), 3 * kFrameHeaderBytes + std::size_t{2} * 12);
  EXPECT_EQ(static_cast<const void*>((*parts)[1].bytes.data()), large->data());
  EXPECT_EQ((*parts)[1].owner, large);
  EXPECT_EQ((*parts)[2].bytes.size(), kFrameHeaderBytes + 12);
}

TEST(FrameCodecTest, EverySingleByteErrorIsFound) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const Frames frames = RandomFrames(random, 4, 300);
    const Bytes bytes = Encode(frames);
    std::size_t frame = 0;
    std::size_t frame_start = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (at == frame_start + kFrameHeaderBytes + frames[frame].payload.size()) {
        ++frame;
        frame_start = at;
      }
      Bytes broken = bytes;
      broken[at] = static_cast<std::uint8_t>(broken[at] ^ (1 + random() % 255));
      const auto decoded = Decode(broken);
      if (at < frame_start + kFrameHeaderBytes) {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << "seed " << seed << ", byte " << at;
        ASSERT_THAT(std::string(decoded.status().message()), HasSubstr("frame " + std::to_string(frame) + ": "));
        continue;
      }
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ASSERT_EQ(decoded->corrupt_payloads, 1u);
      ASSERT_EQ(decoded->frames.size(), frames.size());
      for (std::size_t i = 0; i < frames.size(); ++i) {
        if (i != frame) {
          ExpectSameFrame(decoded->frames[i], frames[i]);
          continue;
        }
        core::FrameHeader expected = frames[i].header;
        expected.status = core::ReplyStatus::kCorrupt;
        ExpectSameHeader(decoded->frames[i].header, expected);
        EXPECT_EQ(decoded->frames[i].payload.size(), 0u);
      }
    }
  }
}

TEST(FrameCodecTest, TruncationIsFoundOrLeavesWholeFrames) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const Frames frames = RandomFrames(random, 4, 300);
    Bytes bytes = Encode(frames);
    std::size_t whole = frames.size();
    std::size_t whole_end = bytes.size();
    for (;; bytes.pop_back()) {
      while (whole_end > bytes.size()) whole_end -= kFrameHeaderBytes + frames[--whole].payload.size();
      const auto decoded = Decode(bytes);
      if (bytes.size() == whole_end) {
        ASSERT_TRUE(decoded.ok()) << decoded.status();
        ASSERT_EQ(decoded->frames.size(), whole);
      } else {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
        ASSERT_THAT(std::string(decoded.status().message()), HasSubstr("expected "));
      }
      if (bytes.empty()) break;
    }
  }
}

// Sets bytes of the header and its checksum anew: a sender that means what it says.
Bytes WithField(Bytes message, std::size_t offset, std::initializer_list<std::uint8_t> value) {
  std::copy(value.begin(), value.end(), message.begin() + static_cast<std::ptrdiff_t>(offset));
  const auto header = absl::MakeConstSpan(message).first(kFrameHeaderBytes);
  const std::uint32_t crc = Crc32c(header.subspan(kHeaderCrcAt + 4), Crc32c(header.first(kHeaderCrcAt)));
  for (std::size_t i = 0; i < 4; ++i) message[kHeaderCrcAt + i] = static_cast<std::uint8_t>(crc >> (8 * i));
  return message;
}

TEST(FrameCodecTest, RefusesWhatTheFormatDoesNotKnow) {
  const Bytes good = Encode({SmallPush()});
  ASSERT_TRUE(Decode(WithField(good, 0, {})).ok());
  const struct {
    std::size_t offset;
    std::initializer_list<std::uint8_t> value;
    const char* message;
  } cases[] = {
      {0, {'N'}, "magic: found 0x4652504e, expected 0x46525044"},
      {4, {2}, "format version: found 0x2, expected 0x3"},
      {4, {4}, "format version: found 0x4, expected 0x3"},
      {6, {128}, "header length: found 0x80, expected 0x98"},
      {8, {8}, "payload length: found 8, expected 0 or what codec 1 makes of 3 elements"},
      {8, {0xFF, 0xFF, 0xFF, 0xFF}, "payload length: found 4294967295, expected 0 or what codec 1"},
      {20, {0}, "kind: found 0, expected 1 to 7"},
      {20, {8}, "kind: found 8, expected 1 to 7"},
      {20, {6}, "record kind: found 0 in a frame of kind 6"},
      {20, {5}, "status: found 0 in a frame of kind 5"},
      {21, {0}, "type and codec: found 0 and 1 with a payload, expected 1 and 1 to 5"},
      {21, {2}, "type and codec: found 2 and 1 in a frame of kind 1, expected 2 and 0"},
      {21, {2, 0}, "type and codec: found 2 and 0 in a frame of kind 1, expected 2 and 0"},
      {21, {3}, "type: found 3, expected 0 to 2"},
      {22, {0}, "type and codec: found 1 and 0 with a payload, expected 1 and 1 to 5"},
      {22, {2}, "payload length: found 12, expected 0 or what codec 2 makes of 3 elements"},
      {22, {3}, "payload length: found 12, expected 0 or what codec 3 makes of 3 elements"},
      {22, {4}, "payload length: found 12, expected 0 or what codec 4 makes of 3 elements"},
      {22, {5}, "payload length: found 12, expected 0 or what codec 5 makes of 3 elements"},
      {22, {6}, "codec: found 6, expected 0 to 5"},
      {23, {3}, "verdict: found 3, expected 0 to 2"},
      {24, {12}, "status: found 12, expected 0 to 11"},
      {24, {1}, "status: found 1 in a frame of kind 1"},
      {25, {8}, "flags: found 8, expected 0 to 7"},
      {26, {1}, "reserved bytes: found some set"},
      {27, {1}, "reserved bytes: found some set"},
      {100, {1, 0, 0x80, 0x3F}, "factor: found 1, expected 0 to 1"},  // the next float
      {100, {0, 0, 0x80, 0xBF}, "factor: found -1, expected 0 to 1"},
      {100, {0, 0, 0xC0, 0x7F}, "factor: found nan, expected 0 to 1"},
      {100, {0, 0, 0x80, 0x7F}, "factor: found inf, expected 0 to 1"},
      {142, {0xF0, 0x7F}, "learning rate: found inf, expected a finite number"},
      {142, {0xF8, 0x7F}, "learning rate: found nan, expected a finite number"},
      {144, {1}, "record kind: found 1 in a frame of kind 1"},
      {144, {6}, "record kind: found 6, expected 0 to 5"},
      {145, {1}, "reserved bytes: found some set"},
      {151, {1}, "reserved bytes: found some set"},
      {96, {4}, "payload length: found 12, expected 0 or what codec 1 makes of 4 elements"},
      // elements * 4 overflows 32 bits to 12
      {96, {3, 0, 0, 0x40}, "payload length: found 12, expected 0 or what codec 1 makes of 1073741827 elements"},
  };
  for (const auto& c : cases) {
    const auto decoded = Decode(WithField(good, c.offset, c.value));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(c.message));
  }
  const Bytes description = Encode({SmallDescription()});
  for (const auto& [offset, value, message] :
       {std::tuple(22, 1, "type and codec: found 2 and 1 in a frame of kind 7, expected 2 and 0"),
        std::tuple(20, 3, "type and codec: found 2 and 0 in a frame of kind 3, expected 2 and 0"),
        std::tuple(21, 1, "type and codec: found 1 and 0 with a payload"),
        std::tuple(96, 4, "payload length: found 5, expected as many bytes as elements, 4"),
        std::tuple(8, 0, "payload length: found 0, expected as many bytes as elements, 5")}) {
    const auto decoded = Decode(WithField(description, offset, {static_cast<std::uint8_t>(value)}));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(message));
  }
  // Bytes in a record, of one kind alone.
  const Bytes record = WithField(WithField(description, 20, {6}), 144, {5});
  EXPECT_TRUE(Decode(record).ok());
  EXPECT_THAT(std::string(Decode(WithField(record, 144, {1})).status().message()),
              HasSubstr("type and codec: found 2 and 0 in a frame of kind 6"));
  // A length that the header vouches for and the message does not hold.
  const Bytes long_claim = WithField(WithField(good, 96, {0, 0, 0x10}), 8, {0, 0, 0x40});
  const auto decoded = Decode(long_claim);
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("payload: found 12 bytes, expected 4194304"));
}

// The bytes as docs/formats.md specifies them: a change here is a new version of the format.
TEST(FrameCodecTest, LayoutIsAsDocumented) {
  core::Frame frame = SmallPush();
  core::FrameHeader& header = frame.header;
  header.kind = core::FrameKind::kRecord;
  header.record = core::RecordKind::kUpdate;
  header.replica = 0xB1B2B3B4B5B6B7B8;
  header.sequence = 0xC1C2C3C4C5C6C7C8;
  header.learning_rate = 0.5;
  header.loss = 2;
  header.verdict = core::Verdict::kSkip;
  header.want_value = true;
  for (std::uint8_t i = 0; i < 16; ++i) header.job_uid[i] = static_cast<std::uint8_t>(0xA0 + i);
  header.incarnation = 0x01020304;
  header.generation = 0x1112131415161718;
  header.session = 0x2122232425262728;
  header.version = 0x3132333435363738;
  header.epoch = 0x41424344;
  header.cut = 0x51525354;
  header.slice = 0x61626364;
  header.update = {0x71727374, 0x81828384, 0x91929394};
  header.clock = 0xA1A2A3A4A5A6A7A8;
  header.factor = 0.5f;
  const Bytes bytes = Encode({frame});
  ASSERT_EQ(bytes.size(), 152u + 12u);
  Bytes expected = {
      'D',  'P',  'R',  'F',  3,    0,    152,  0,    12,   0,    0,    0,  // to payload length
      0,    0,    0,    0,    0,    0,    0,    0,                          // checksums
      6,    1,    1,    2,    0,    1,    0,    0,                          // kind to reserved
      0x04, 0x03, 0x02, 0x01,                                               // incarnation
      0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xAB, 0xAC, 0xAD, 0xAE, 0xAF,  // job uid
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,                                                  // generation
      0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,                                                  // session
      0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,                                                  // slice version
      0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61,                          // epoch to slice
      0x74, 0x73, 0x72, 0x71, 0x84, 0x83, 0x82, 0x81, 0x94, 0x93, 0x92, 0x91,                          // update
      3,    0,    0,    0,    0,    0,    0,    0x3F,  // elements, factor
      0xA8, 0xA7, 0xA6, 0xA5, 0xA4, 0xA3, 0xA2, 0xA1,  // clock
      0,    0,    0,    0,    0,    0,    0,    0x40,  // loss
      0xB8, 0xB7, 0xB6, 0xB5, 0xB4, 0xB3, 0xB2, 0xB1,  // replica
      0xC8, 0xC7, 0xC6, 0xC5, 0xC4, 0xC3, 0xC2, 0xC1,  // sequence
      0,    0,    0,    0,    0,    0,    0xE0, 0x3F,  // learning rate
      1,                                               // record kind
  };
  expected.resize(152);
  const Bytes payload = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 0, 0, 0x60, 0x40};
  const std::uint32_t payload_crc = Crc32cPortable(payload);
  for (std::size_t i = 0; i < 4; ++i) expected[12 + i] = static_cast<std::uint8_t>(payload_crc >> (8 * i));
  Bytes signed_part = expected;
  signed_part.erase(signed_part.begin() + 16, signed_part.begin() + 20);
  const std::uint32_t header_crc = Crc32cPortable(signed_part);
  for (std::size_t i = 0; i < 4; ++i) expected[16 + i] = static_cast<std::uint8_t>(header_crc >> (8 * i));
  expected.insert(expected.end(), payload.begin(), payload.end());
  EXPECT_EQ(bytes, expected);
}

TEST(FrameCodecTest, RefusesToSendWhatItWouldNotAccept) {
  core::Frame no_status = SmallPush();
  no_status.header.kind = core::FrameKind::kReply;
  core::Frame stray_status = SmallPush();
  stray_status.header.status = core::ReplyStatus::kApplied;
  core::Frame wrong_size = SmallPush();
  wrong_size.header.elements = 4;
  core::Frame untyped = SmallPush();
  untyped.header.type = core::DataType::kNone;
  core::Frame no_factor = SmallPush();
  no_factor.header.factor = std::numeric_limits<float>::quiet_NaN();
  core::Frame no_record = SmallPush();
  no_record.header.kind = core::FrameKind::kRecord;
  core::Frame stray_record = SmallPush();
  stray_record.header.record = core::RecordKind::kPulled;
  core::Frame no_rate = SmallPush();
  no_rate.header.learning_rate = std::numeric_limits<double>::infinity();
  core::Frame few_bytes = SmallDescription();
  few_bytes.header.elements = 4;
  core::Frame coded_bytes = SmallDescription();
  coded_bytes.header.codec = core::FrameCodec::kFp32;
  core::Frame pushed_bytes = SmallDescription();
  pushed_bytes.header.kind = core::FrameKind::kPush;
  for (const core::Frame& frame : {no_status, stray_status, wrong_size, untyped, no_factor, no_record, stray_record,
                                   no_rate, few_bytes, coded_bytes, pushed_bytes}) {
    EXPECT_EQ(EncodeMessage({SmallPush(), frame}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(FrameCodecTest, HoldsTheMessageLimitOnBothSides) {
  const auto values = std::make_shared<const std::vector<float>>((4u << 20) / sizeof(float));
  core::Frame full = SmallPush();
  full.header.elements = static_cast<std::uint32_t>(values->size());
  full.payload = core::Payload::OfFloats(*values, values);
  Frames frames = {full};
  frames.resize(512, core::Frame{});
  const Bytes largest = Encode(frames);
  EXPECT_EQ(largest.size(), kMaxMessageBytes);
  EXPECT_TRUE(Decode(largest).ok());
  frames.emplace_back();
  EXPECT_EQ(EncodeMessage(frames).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Decode(Bytes(kMaxMessageBytes + 1)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(FrameCodecTest, AnEmptyMessageHasNoFrames) {
  EXPECT_TRUE(Encode({}).empty());
  const auto decoded = DecodeMessage({}, nullptr);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->frames.empty());
}

}  // namespace
}  // namespace downpour::wire
