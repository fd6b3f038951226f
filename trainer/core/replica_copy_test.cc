#include "trainer/core/replica_copy.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"

namespace downpour::core {
namespace {

using ::testing::HasSubstr;
using Vector = std::shared_ptr<const std::vector<float>>;

constexpr std::uint32_t kNumber = 3;

// Any bits: infinities, signalling NaNs and -0 among them.
float AnyFloat(std::mt19937_64& random) {
  static constexpr std::uint32_t kSpecial[] = {0x80000000, 0x7F800001, 0xFFC12345, 0x7F800000, 1};
  return std::bit_cast<float>(random() % 3 == 0 ? kSpecial[random() % 5] : static_cast<std::uint32_t>(random()));
}

Vector AnyVector(std::mt19937_64& random, std::uint32_t elements) {
  auto values = std::make_shared<std::vector<float>>(elements);
  for (float& value : *values) value = AnyFloat(random);
  return values;
}

ReplicaCopy RandomCopy(std::mt19937_64& random) {
  ReplicaCopy copy;
  copy.sequence = 2 + random() % 1000;
  copy.step_width = static_cast<std::uint32_t>(random() % 3);
  SliceSnapshot& snapshot = copy.snapshot;
  snapshot.number = kNumber;
  snapshot.slice = {1, 8, static_cast<std::uint32_t>(1 + random() % 40)};
  std::vector<Vector> vectors = {AnyVector(random, snapshot.slice.elements)};
  snapshot.value = vectors[0];
  snapshot.optimizer.type = "adam";
  for (std::uint64_t i = random() % 4; i != 0; --i) {
    vectors.push_back(AnyVector(random, snapshot.slice.elements));
    snapshot.optimizer.vectors.push_back({absl::StrCat("vector", i), vectors.back()});
  }
  for (const double value : {-0.0, std::bit_cast<double>(0x7FF0000000000001), 0.0, 1.0 / 3}) {
    if (random() % 2 == 0) snapshot.optimizer.scalars.push_back({absl::StrCat("scalar", value), value});
  }
  for (std::uint64_t i = random() % 4; i != 0; --i) {
    std::vector<PulledValue>& values = copy.pulled[random()];
    for (std::uint64_t j = random() % 4; j != 0; --j) {
      if (random() % 4 == 0) vectors.push_back(AnyVector(random, snapshot.slice.elements));
      Vector value = vectors[random() % vectors.size()];
      if (random() % 3 == 0) value = std::make_shared<const std::vector<float>>(*value);  // the same bits elsewhere
      values.push_back({random(), std::move(value)});
    }
  }
  snapshot.table.set_slice(kNumber);
  snapshot.table.set_version(random());
  snapshot.table.set_watermark(2);
  v1::EpochTable* epoch = snapshot.table.add_epochs();
  epoch->set_dataset_epoch(2);
  epoch->set_retired(std::string("\x05\0", 2));
  epoch->add_open()->set_applied("\xFF");
  return copy;
}

std::vector<std::uint32_t> Bits(const Vector& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values->size());
  for (const float value : *values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

void ExpectSame(const ReplicaCopy& a, const ReplicaCopy& b) {
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.step_width, b.step_width);
  EXPECT_EQ(a.snapshot.number, b.snapshot.number);
  EXPECT_EQ(a.snapshot.slice.tensor, b.snapshot.slice.tensor);
  EXPECT_EQ(a.snapshot.slice.offset, b.snapshot.slice.offset);
  EXPECT_EQ(a.snapshot.slice.elements, b.snapshot.slice.elements);
  EXPECT_EQ(Bits(a.snapshot.value), Bits(b.snapshot.value));
  EXPECT_EQ(a.snapshot.table.SerializeAsString(), b.snapshot.table.SerializeAsString());
  const OptimizerState& one = a.snapshot.optimizer;
  const OptimizerState& other = b.snapshot.optimizer;
  EXPECT_EQ(one.type, other.type);
  ASSERT_EQ(one.vectors.size(), other.vectors.size());
  for (std::size_t i = 0; i < one.vectors.size(); ++i) {
    EXPECT_EQ(one.vectors[i].name, other.vectors[i].name);
    EXPECT_EQ(Bits(one.vectors[i].values), Bits(other.vectors[i].values));
  }
  ASSERT_EQ(one.scalars.size(), other.scalars.size());
  for (std::size_t i = 0; i < one.scalars.size(); ++i) {
    EXPECT_EQ(one.scalars[i].name, other.scalars[i].name);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(one.scalars[i].value), std::bit_cast<std::uint64_t>(other.scalars[i].value));
  }
  ASSERT_EQ(a.pulled.size(), b.pulled.size());
  for (const auto& [session, values] : a.pulled) {
    ASSERT_EQ(b.pulled.count(session), 1u);
    ASSERT_EQ(values.size(), b.pulled.at(session).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].version, b.pulled.at(session)[i].version);
      EXPECT_EQ(Bits(values[i].value), Bits(b.pulled.at(session)[i].value));
    }
  }
}

std::vector<Frame> Cut(const ReplicaCopy& copy) {
  absl::StatusOr<std::vector<Frame>> parts = CutCopy(copy);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.ok() ? *std::move(parts) : std::vector<Frame>();
}

// All of them are to be taken.
void AddAll(CopyAssembly& assembly, const std::vector<Frame>& parts) {
  for (const Frame& part : parts) {
    const absl::Status added = assembly.Add(part);
    EXPECT_TRUE(added.ok()) << added;
  }
}

void ExpectTaken(CopyAssembly& assembly, const ReplicaCopy& copy) {
  const auto taken = assembly.Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  ASSERT_TRUE(taken->has_value());
  ExpectSame(**taken, copy);
}

void ExpectNone(CopyAssembly& assembly) {
  const auto taken = assembly.Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_FALSE(taken->has_value());
}

// A value, two vectors, and a session that got the value and one more.
ReplicaCopy SmallCopy(std::uint64_t sequence = 7) {
  std::mt19937_64 random(sequence);
  ReplicaCopy copy;
  copy.sequence = sequence;
  copy.snapshot.number = kNumber;
  copy.snapshot.slice = {0, 0, 4};
  copy.snapshot.value = AnyVector(random, 4);
  copy.snapshot.optimizer.type = "adam";
  copy.snapshot.optimizer.vectors = {{"m", AnyVector(random, 4)}, {"v", AnyVector(random, 4)}};
  copy.pulled[5] = {{1, AnyVector(random, 4)}, {2, copy.snapshot.value}};
  copy.snapshot.table.set_slice(kNumber);
  return copy;
}

// Another description in the place of what `part` has.
Frame Describing(Frame part, const v1::ReplicaDescription& description) {
  const std::string bytes = description.SerializeAsString();
  part.header.elements = static_cast<std::uint32_t>(bytes.size());
  part.payload = OwningPayload(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
  return part;
}

v1::ReplicaDescription DescriptionOf(const Frame& part) {
  v1::ReplicaDescription description;
  const auto& bytes = part.payload.segments().at(0);
  EXPECT_TRUE(description.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return description;
}

TEST(ReplicaCopyTest, ComesBackBitForBitInAnyOrderAndWithRepeats) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ReplicaCopy copy = RandomCopy(random);
    std::vector<Frame> parts = Cut(copy);
    for (const Frame& part : parts) EXPECT_LE(part.payload.size(), kSliceBytes);
    std::shuffle(parts.begin(), parts.end(), random);
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ExpectNone(assembly);
      AddAll(assembly, {parts[i], parts[random() % (i + 1)]});
    }
    ExpectTaken(assembly, copy);
    AddAll(assembly, parts);  // once more, too late
    ExpectNone(assembly);
  }
}

TEST(ReplicaCopyTest, PayloadsMayBeCutAnywhereAndAreNotKept) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ReplicaCopy copy = RandomCopy(random);
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    for (Frame part : Cut(copy)) {
      auto bytes = std::make_shared<std::vector<std::uint8_t>>(1, std::uint8_t{0});  // so that floats are not aligned
      for (const auto& segment : part.payload.segments()) bytes->insert(bytes->end(), segment.begin(), segment.end());
      std::vector<absl::Span<const std::uint8_t>> segments;
      for (auto rest = absl::MakeConstSpan(*bytes).subspan(1); !rest.empty();) {
        segments.push_back(rest.first(std::min<std::size_t>(rest.size(), random() % 9)));
        rest.remove_prefix(segments.back().size());
      }
      part.payload = Payload(std::move(segments), bytes);
      EXPECT_TRUE(assembly.Add(part).ok());
      part.payload = Payload();
      EXPECT_EQ(bytes.use_count(), 1);
      std::fill(bytes->begin(), bytes->end(), std::uint8_t{0xEE});
    }
    ExpectTaken(assembly, copy);
  }
}

TEST(ReplicaCopyTest, EqualValuesTravelOnceAndAreOneAgain) {
  ReplicaCopy copy = SmallCopy();
  EXPECT_EQ(Cut(copy).size(), 5u);  // with the description
  copy.pulled[5].push_back(copy.pulled[5][0]);
  copy.pulled[6] = {{9, std::make_shared<const std::vector<float>>(*copy.snapshot.value)}};
  copy.pulled[7] = {{9, copy.snapshot.optimizer.vectors[1].values}};
  const std::vector<Frame> parts = Cut(copy);
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(static_cast<const void*>(parts[1].payload.segments().at(0).data()), copy.snapshot.value->data());
  EXPECT_EQ(parts[1].payload.owner(), copy.snapshot.value);
  CopyAssembly assembly(kNumber, copy.snapshot.slice);
  AddAll(assembly, parts);
  const auto taken = assembly.Take();
  ASSERT_TRUE(taken.ok() && taken->has_value());
  const ReplicaCopy& back = **taken;
  ExpectSame(back, copy);
  EXPECT_EQ(back.pulled.at(5)[1].value, back.snapshot.value);
  EXPECT_EQ(back.pulled.at(6)[0].value, back.snapshot.value);
  EXPECT_EQ(back.pulled.at(5)[2].value, back.pulled.at(5)[0].value);
  EXPECT_EQ(back.pulled.at(7)[0].value, back.snapshot.optimizer.vectors[1].values);
}

// Which values share memory is no matter: parts of two cuts of one state may be mixed.
TEST(ReplicaCopyTest, TheSameStateIsCutTheSameWay) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ReplicaCopy copy = RandomCopy(random);
    ReplicaCopy apart = copy;
    for (auto& [session, values] : apart.pulled) {
      for (PulledValue& value : values) value.value = std::make_shared<const std::vector<float>>(*value.value);
    }
    const std::vector<Frame> parts = Cut(copy);
    const std::vector<Frame> others = Cut(apart);
    ASSERT_EQ(parts.size(), others.size());
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    for (std::size_t i = 0; i < parts.size(); ++i) AddAll(assembly, {random() % 2 == 0 ? parts[i] : others[i]});
    ExpectTaken(assembly, copy);
  }
}

TEST(ReplicaCopyTest, ANewerCopyTakesThePlaceOfAnOlderOne) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ReplicaCopy newest = SmallCopy(9);
    std::vector<Frame> parts = Cut(newest);
    std::vector<Frame> old = Cut(SmallCopy(8));
    old.pop_back();  // never whole
    parts.insert(parts.end(), old.begin(), old.end());
    std::shuffle(parts.begin(), parts.end(), random);
    CopyAssembly assembly(kNumber, newest.snapshot.slice);
    AddAll(assembly, parts);
    ExpectTaken(assembly, newest);
    // One that was taken makes room too.
    AddAll(assembly, old);
    ExpectNone(assembly);
    AddAll(assembly, Cut(SmallCopy(10)));
    ExpectTaken(assembly, SmallCopy(10));
  }
}

TEST(ReplicaCopyTest, AWrongPartChangesNothing) {
  const ReplicaCopy copy = SmallCopy();
  const std::vector<Frame> parts = Cut(copy);
  const auto floats = std::make_shared<const std::vector<float>>(5);
  const struct {
    std::size_t part;
    std::function<void(Frame&)> damage;
    const char* message;
  } cases[] = {
      {1, [](Frame& part) { part.header.kind = FrameKind::kInitialise; }, "kind: found 3, expected 7"},
      {1, [](Frame& part) { part.header.status = ReplyStatus::kCorrupt; }, "status: found 11, expected 0"},
      {1, [](Frame& part) { part.header.slice = 4; }, "slice: found 4, expected 3"},
      {1, [](Frame& part) { part.header.clock = 1; }, "number of parts: found 1, expected 2 to 65536"},
      {1, [](Frame& part) { part.header.clock = kMostCopyParts + 1; }, "number of parts: found 65537"},
      {1, [](Frame& part) { part.header.clock = UINT64_MAX; }, "number of parts: found 18446744073709551615"},
      {1, [](Frame& part) { part.header.clock = 6; }, "number of parts: found 6, expected 5 as in the others"},
      {1, [](Frame& part) { part.header.version = 5; }, "part: found 5, expected less than 5"},
      {1, [](Frame& part) { part.header.version = 0; }, "type and codec of part 0: found 1 and 1, expected 2 and 0"},
      {1, [](Frame& part) { part.header.codec = FrameCodec::kBf16; }, "type and codec of part 1: found 1 and 2"},
      {1, [](Frame& part) { part.header.type = DataType::kBytes; }, "type and codec of part 1: found 2 and 1"},
      {1, [](Frame& part) { part.header.elements = 3; }, "part 1: found 3 elements in 16 bytes, expected 4 in 16"},
      {1, [](Frame& part) { part.payload = Payload(); }, "part 1: found 4 elements in 0 bytes, expected 4 in 16"},
      {1, [&](Frame& part) { part.payload = Payload::OfFloats(*floats, floats); }, "found 4 elements in 20 bytes"},
      {0, [](Frame& part) { part.header.version = 1; }, "type and codec of part 1: found 2 and 0, expected 1 and 1"},
      {0, [](Frame& part) { ++part.header.elements; }, "elements, expected as many"},
      {0,
       [](Frame& part) {
         part = Describing(part, {});
         ++part.header.elements;
       },
       "description: found 0 bytes and 1"},
      {0,
       [](Frame& part) {
         part.header.elements = 1;
         part.payload = OwningPayload({0xFF});
       },
       "description: found what is no ReplicaDescription"},
      {0,
       [](Frame& part) {
         part.header.elements = kSliceBytes + 1;
         part.payload = OwningPayload(std::vector<std::uint8_t>(kSliceBytes + 1));
       },
       "description: found 4194305 bytes"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.message);
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    AddAll(assembly, {parts[2]});
    Frame wrong = parts[c.part];
    c.damage(wrong);
    const absl::Status status = assembly.Add(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    wrong.header.sequence += 100;  // nor does one of a newer copy
    if (wrong.header.clock != 6) {
      EXPECT_EQ(assembly.Add(wrong).code(), absl::StatusCode::kInvalidArgument);
    }
    AddAll(assembly, parts);
    ExpectTaken(assembly, copy);
  }
}

TEST(ReplicaCopyTest, PartsThatDoNotFitTogetherAreForgotten) {
  const ReplicaCopy copy = SmallCopy();
  const std::vector<Frame> parts = Cut(copy);
  const struct {
    std::function<void(v1::ReplicaDescription&)> damage;
    const char* message;
  } cases[] = {
      {[](auto& of) { of.mutable_table()->set_slice(2); }, "table: found slice 2, expected 3"},
      {[](auto& of) { of.clear_vectors(); }, "part of a value of session 5: found 4, expected 1 to 2"},
      {[](auto& of) {
         of.add_vectors("w");
         of.add_vectors("x");
       },
       "parts: found 5, expected 6 or more"},
      {[](auto& of) { of.clear_pulled(); }, "parts: found 5, expected 4 as described"},
      {[](auto& of) { of.mutable_pulled(0)->mutable_values(0)->set_part(0); }, "found 0, expected 1 to 4"},
      {[](auto& of) { of.mutable_pulled(0)->mutable_values(0)->set_part(5); }, "found 5, expected 1 to 4"},
      {[](auto& of) { of.mutable_pulled(0)->mutable_values(0)->set_part(UINT32_MAX); }, "expected 1 to 4"},
      {[](auto& of) { *of.add_pulled() = of.pulled(0); }, "session: found 5 behind 5, expected them to rise"},
      {[](auto& of) { of.add_pulled()->set_session(4); }, "session: found 4 behind 5, expected them to rise"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.message);
    v1::ReplicaDescription description = DescriptionOf(parts[0]);
    c.damage(description);
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    AddAll(assembly, {Describing(parts[0], description), parts[1], parts[2], parts[3], parts[4]});
    const auto taken = assembly.Take();
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(taken.status().message()), HasSubstr(c.message));
    ExpectNone(assembly);
    AddAll(assembly, parts);
    ExpectTaken(assembly, copy);
  }
}

// Whatever comes, what is taken is whole, and the right copy is taken in the end.
TEST(ReplicaCopyTest, NoDamageBreaksIt) {
  const google::protobuf::LogSilencer silencer;  // it says of every name that it is no UTF-8
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ReplicaCopy copy = RandomCopy(random);
    const std::vector<Frame> parts = Cut(copy);
    CopyAssembly assembly(kNumber, copy.snapshot.slice);
    for (int i = 0; i < 20; ++i) {
      Frame part = parts[random() % parts.size()];
      FrameHeader& header = part.header;
      std::vector<std::uint8_t> bytes;
      for (const auto& segment : part.payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
      for (std::uint64_t damage = random() % 3; damage != 0; --damage) {
        switch (random() % 7) {
          case 0:
            header.version = random() % (parts.size() + 2);
            break;
          case 1:
            header.clock += random() % 3 - 1;
            break;
          case 2:
            header.elements += static_cast<std::uint32_t>(random() % 3 - 1);
            break;
          case 3:
            header.type = static_cast<DataType>(random() % 3);
            break;
          case 4:
            header.sequence += random() % 3 - 1;
            break;
          case 5:
            if (!bytes.empty()) bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
            break;
          case 6:
            bytes.resize(random() % (bytes.size() + 2));
            header.elements = static_cast<std::uint32_t>(bytes.size());
            break;
        }
      }
      part.payload = OwningPayload(std::move(bytes));
      const absl::Status added = assembly.Add(part);
      EXPECT_TRUE(added.ok() || added.code() == absl::StatusCode::kInvalidArgument) << added;
      const auto taken = assembly.Take();
      EXPECT_TRUE(taken.ok() || taken.status().code() == absl::StatusCode::kInvalidArgument) << taken.status();
      if (taken.ok() && taken->has_value()) {
        EXPECT_TRUE(CutCopy(**taken).ok());
      }
    }
    std::vector<Frame> later = parts;
    for (Frame& part : later) part.header.sequence += 1000;
    AddAll(assembly, later);
    ReplicaCopy expected = copy;
    expected.sequence += 1000;
    ExpectTaken(assembly, expected);
  }
}

TEST(ReplicaCopyTest, ASliceOfTheLargestSizeFits) {
  ReplicaCopy copy = SmallCopy(0);
  copy.snapshot.slice.elements = kSliceBytes / 4;
  copy.snapshot.value = std::make_shared<const std::vector<float>>(kSliceBytes / 4, -0.0f);
  copy.snapshot.optimizer.vectors.clear();
  copy.pulled.clear();
  const std::vector<Frame> parts = Cut(copy);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].payload.size(), kSliceBytes);
  CopyAssembly assembly(kNumber, copy.snapshot.slice);
  AddAll(assembly, parts);
  ExpectTaken(assembly, copy);
}

TEST(ReplicaCopyTest, WhatCannotBeCutIsSaid) {
  const auto expect = [](const ReplicaCopy& copy, const char* message) {
    const auto parts = CutCopy(copy);
    EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parts.status().message()), HasSubstr(message));
  };
  ReplicaCopy copy = SmallCopy();
  copy.snapshot.value = nullptr;
  expect(copy, "copy of slice 3: value: expected 4 elements");
  copy = SmallCopy();
  copy.snapshot.optimizer.vectors[1].values = std::make_shared<const std::vector<float>>(3);
  expect(copy, "vector v: expected 4 elements");
  copy = SmallCopy();
  copy.pulled[5][0].value = std::make_shared<const std::vector<float>>(5);
  expect(copy, "value of session 5: expected 4 elements");
  copy = SmallCopy();
  copy.snapshot.table.add_epochs()->set_retired(std::string(kSliceBytes, '\1'));
  expect(copy, "bytes, expected at most 4194304");
  copy = SmallCopy();
  copy.pulled.clear();
  std::vector<PulledValue>& values = copy.pulled[1];
  for (std::size_t i = 4; i < kMostCopyParts; ++i) {
    const auto number = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    values.push_back({i, std::make_shared<const std::vector<float>>(4, number)});
  }
  EXPECT_EQ(Cut(copy).size(), kMostCopyParts);
  values.push_back({0, std::make_shared<const std::vector<float>>(4, 0.5f)});
  expect(copy, "parts: found 65537, expected at most 65536");
}

}  // namespace
}  // namespace downpour::core
