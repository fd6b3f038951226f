#include "trainer/wire/local_record.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace downpour::wire {
namespace {

// docs/formats.md.
TEST(LocalRecordTest, LayoutIsAsDocumented) {
  LocalRecord record;
  record.purpose = RecordPurpose::kReply;
  record.exchange = 0x0102030405060708;
  record.offset = 0x1112131415161718;
  record.length = 0x21222324;
  EXPECT_EQ(
      EncodeRecord(record),
      (std::vector<std::uint8_t>{0x44, 0x50, 0x53, 0x4d, 1,    0,    4,    0,    8,    7,    6,    5,    4, 3, 2, 1,
                                 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0, 0, 0, 0}));
  std::vector<std::uint8_t> error = EncodeRecord(ErrorRecord(1, absl::UnavailableError("no")));
  EXPECT_EQ(error[6], 6);
  EXPECT_EQ(error[7], 14);
  EXPECT_EQ(error[8], 1);
  EXPECT_EQ(std::string(error.begin() + 32, error.end()), "no");
}

TEST(LocalRecordTest, WhatWasEncodedIsDecoded) {
  LocalRecord here;
  here.purpose = RecordPurpose::kRequest;
  here.exchange = 7;
  here.body = {1, 2, 3};
  here.length = 3;
  LocalRecord there = here;
  there.body.clear();
  there.offset = 64;
  there.length = 5000;
  LocalRecord hello = TextRecord(RecordPurpose::kHello, "job address");
  hello.offset = 4096;
  for (const LocalRecord& record : {here, there, hello, ErrorRecord(3, absl::NotFoundError("why"))}) {
    const auto again = DecodeRecord(EncodeRecord(record));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(EncodeRecord(*again), EncodeRecord(record));
    EXPECT_EQ(again->in_region(), record.length == 5000);
  }
  EXPECT_EQ(StatusOf(ErrorRecord(3, absl::NotFoundError("why"))), absl::NotFoundError("why"));
}

TEST(LocalRecordTest, RefusesWhatBreaksARule) {
  LocalRecord record;
  record.purpose = RecordPurpose::kRequest;
  record.exchange = 1;
  record.offset = 64;
  record.length = 5000;
  const std::vector<std::uint8_t> sound = EncodeRecord(record);
  ASSERT_TRUE(DecodeRecord(sound).ok());
  const auto refused = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> bytes = sound;
    bytes[at] = value;
    return absl::IsDataLoss(DecodeRecord(bytes).status());
  };
  EXPECT_TRUE(refused(0, 0));
  EXPECT_TRUE(refused(4, 2));
  EXPECT_TRUE(refused(6, 0));
  EXPECT_TRUE(refused(6, 7));
  EXPECT_TRUE(refused(6, 5)) << "a length where none may be";
  EXPECT_TRUE(refused(7, 1)) << "a code where none may be";
  EXPECT_TRUE(refused(31, 1));
  record.purpose = RecordPurpose::kError;
  record.offset = record.length = 0;
  EXPECT_FALSE(DecodeRecord(EncodeRecord(record)).ok()) << "an error without a code";
  record.code = static_cast<absl::StatusCode>(17);
  EXPECT_FALSE(DecodeRecord(EncodeRecord(record)).ok());
  EXPECT_FALSE(DecodeRecord({}).ok());
  EXPECT_FALSE(DecodeRecord(absl::MakeConstSpan(sound).first(31)).ok());
  EXPECT_FALSE(DecodeRecord(std::vector<std::uint8_t>(kMostRecordBytes + 1)).ok());
}

}  // namespace
}  // namespace downpour::wire
