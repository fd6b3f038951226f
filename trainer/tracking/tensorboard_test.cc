#include "trainer/tracking/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/testing/fake_file_system.h"

namespace downpour::tracking {
namespace {

using checkpoint::testing::FakeFileSystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// ---- A reader by the rules of the format alone: nothing of what writes is used.

std::uint64_t LittleEndian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) number = number << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return number;
}

std::uint32_t Masked(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

// The records up to the first that is not whole.
std::vector<std::string> Records(std::string_view file) {
  std::vector<std::string> records;
  while (file.size() >= 12) {
    const std::uint64_t length = LittleEndian(file.substr(0, 8));
    if (LittleEndian(file.substr(8, 4)) != Masked(file.substr(0, 8)) || file.size() - 12 < length + 4) break;
    const std::string_view data = file.substr(12, length);
    if (LittleEndian(file.substr(12 + length, 4)) != Masked(data)) break;
    records.emplace_back(data);
    file.remove_prefix(12 + length + 4);
  }
  return records;
}

struct Field {
  std::uint64_t number = 0;
  std::uint64_t bits = 0;  // a varint, or what a fixed field has
  std::string bytes;       // of one with a length
};

std::uint64_t Varint(std::string_view& bytes) {
  std::uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    number |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
}

std::vector<Field> Fields(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = Varint(message);
    Field field;
    field.number = key >> 3;
    if ((key & 7) == 0) {
      field.bits = Varint(message);
    } else {
      const std::uint64_t length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : Varint(message);
      field.bytes = std::string(message.substr(0, length));
      if ((key & 7) != 2) field.bits = LittleEndian(field.bytes);
      message.remove_prefix(length);
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

// The last one with this number; an empty one: there is none.
Field Find(std::string_view message, std::uint64_t number) {
  Field found;
  for (Field& field : Fields(message)) {
    if (field.number == number) found = std::move(field);
  }
  return found;
}

double Double(std::uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::vector<double> Doubles(const std::string& packed) {
  std::vector<double> values;
  for (std::size_t i = 0; i < packed.size(); i += 8) values.push_back(Double(LittleEndian(packed.substr(i, 8))));
  return values;
}

// "STEP: WHAT" of each event.
std::vector<std::string> Describe(std::string_view file) {
  std::vector<std::string> lines;
  for (const std::string& event : Records(file)) {
    const std::string step = absl::StrCat(Find(event, 2).bits, ": ");
    if (const Field version = Find(event, 3); version.number != 0) lines.push_back(step + version.bytes);
    if (const Field log = Find(event, 7); log.number != 0) {
      lines.push_back(absl::StrCat(step, "session ", Find(log.bytes, 1).bits));
    }
    for (const Field& value : Fields(Find(event, 5).bytes)) {
      std::string line = absl::StrCat(step, Find(value.bytes, 1).bytes);
      if (const Field simple = Find(value.bytes, 2); simple.number != 0) {
        const auto bits = static_cast<std::uint32_t>(simple.bits);
        float number = 0;
        std::memcpy(&number, &bits, sizeof(number));
        absl::StrAppend(&line, " = ", number);
      }
      if (const Field tensor = Find(value.bytes, 8); tensor.number != 0) {
        absl::StrAppend(&line, " (", Find(Find(Find(value.bytes, 9).bytes, 1).bytes, 1).bytes, ", type ",
                        Find(tensor.bytes, 1).bits, ", of ", Find(Find(Find(tensor.bytes, 2).bytes, 2).bytes, 1).bits,
                        "): ", Find(tensor.bytes, 8).bytes);
      }
      if (Find(value.bytes, 5).number != 0) line += " histogram";
      lines.push_back(line);
    }
  }
  return lines;
}

constexpr absl::Duration kLimit = absl::Seconds(10);
constexpr char kFolder[] = "/runs/board/job";

Run TheRun() {
  Run run;
  run.job_name = "job";
  run.configuration = "{}";
  run.time = 1700000000.5;
  return run;
}

Point LossAt(std::int64_t step, double loss, bool begins_history = false) {
  Point point;
  point.step = step;
  point.time = 1700000000.5 + static_cast<double>(step);
  point.begins_history = begins_history;
  point.scalars.push_back({"train/loss", loss});
  return point;
}

class TensorBoardTest : public testing::Test {
 protected:
  std::unique_ptr<Tracker> Make(const std::string& suffix = "0123.1") {
    auto tracker = MakeTensorBoardTracker({kFolder, suffix, &files_});
    EXPECT_EQ(tracker->Begin(TheRun(), kLimit), absl::OkStatus());
    return tracker;
  }

  FakeFileSystem files_{1};
};

TEST_F(TensorBoardTest, WritesWhatTensorBoardReads) {
  auto tracker = Make();
  Point point = LossAt(7, 0.25, true);
  point.texts.push_back({"phase", "Training"});
  ASSERT_EQ(tracker->Write({point, LossAt(9, std::numeric_limits<double>::infinity())}, kLimit), absl::OkStatus());
  ASSERT_EQ(tracker->Write({LossAt(11, -3)}, kLimit), absl::OkStatus());
  EXPECT_EQ(tracker->End(Outcome::kSucceeded, 1, kLimit), absl::OkStatus());
  ASSERT_THAT(files_.Files(), ElementsAre("/runs/board/job/events.out.tfevents.1700000007.0123.1"));
  const std::string& file = files_.Content(files_.Files()[0]);
  EXPECT_THAT(Describe(file), ElementsAre("0: brain.Event:2", "7: session 1", "7: train/loss = 0.25",
                                          "7: phase (text, type 7, of 1): Training",
                                          "7: configuration (text, type 7, of 1): ```json\n{}\n```\n",
                                          "9: train/loss = inf", "11: train/loss = -3"));
  EXPECT_EQ(Double(Find(Records(file)[1], 1).bits), 1700000007.5);
}

TEST_F(TensorBoardTest, AHistogramHasEveryValue) {
  auto tracker = Make();
  Point point;
  point.step = 3;
  point.histograms.push_back(MakeHistogram("workers/staleness", {1, 2, 2, 5}, 4));
  ASSERT_EQ(tracker->Write({point}, kLimit), absl::OkStatus());
  const std::vector<std::string> events = Records(files_.Content(files_.Files()[0]));
  ASSERT_THAT(events, SizeIs(2));
  const Field value = Fields(Find(events[1], 5).bytes)[0];
  EXPECT_EQ(Find(value.bytes, 1).bytes, "workers/staleness");
  const std::string histogram = Find(value.bytes, 5).bytes;
  std::vector<double> numbers;
  for (const unsigned field : {1u, 2u, 3u, 4u, 5u}) numbers.push_back(Double(Find(histogram, field).bits));
  EXPECT_THAT(numbers, ElementsAre(1, 5, 4, 10, 34));
  EXPECT_THAT(Doubles(Find(histogram, 6).bytes), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Doubles(Find(histogram, 7).bytes), ElementsAre(1, 2, 0, 1));
}

TEST_F(TensorBoardTest, ARunThatIsResumedGoesOnInAFileThatSortsBehind) {
  ASSERT_EQ(Make("0123.1")->Write({LossAt(5, 1, true)}, kLimit), absl::OkStatus());
  Point resumed = LossAt(3, 2, true);
  resumed.time = 1600000000;  // the clock was set back
  ASSERT_EQ(Make("0123.2")->Write({resumed}, kLimit), absl::OkStatus());
  ASSERT_THAT(files_.Files(), ElementsAre("/runs/board/job/events.out.tfevents.1700000005.0123.1",
                                          "/runs/board/job/events.out.tfevents.1700000006.0123.2"));
  const std::vector<std::string> second = Describe(files_.Content(files_.Files()[1]));
  EXPECT_THAT(second, ElementsAre("0: brain.Event:2", "3: session 1", "3: train/loss = 2", HasSubstr("configuration")));
}

// Wherever the file ends, the records before are read, and a new file has what the one before lacks.
TEST_F(TensorBoardTest, AProcessThatDiesAmidARecordLosesNoOther) {
  auto tracker = Make();
  ASSERT_EQ(tracker->Write({LossAt(1, 1)}, kLimit), absl::OkStatus());
  const std::string path = files_.Files()[0];
  const std::size_t first = files_.Content(path).size();
  ASSERT_EQ(tracker->Write({LossAt(2, 2)}, kLimit), absl::OkStatus());
  const std::string whole = files_.Content(path);
  for (std::size_t size = first; size < whole.size(); ++size) {
    EXPECT_THAT(Describe(whole.substr(0, size)), SizeIs(3)) << "of " << size << " bytes";
  }
  EXPECT_THAT(Describe(whole), SizeIs(4));
  std::string damaged = whole;
  damaged[first + 20] = static_cast<char>(damaged[first + 20] ^ 1);
  EXPECT_THAT(Describe(damaged), SizeIs(3));
}

TEST_F(TensorBoardTest, AfterAFullDiskAnotherFileGoesOn) {
  auto tracker = Make();
  ASSERT_EQ(tracker->Write({LossAt(1, 1)}, kLimit), absl::OkStatus());
  files_.LimitBytes(files_.bytes_used() + 10);
  const absl::Status full = tracker->Write({LossAt(2, 2)}, kLimit);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(full.message(), HasSubstr("/runs/board/job/events.out.tfevents.1700000001.0123.1: cannot write"));
  EXPECT_TRUE(absl::IsResourceExhausted(tracker->Write({LossAt(2, 2)}, kLimit)));
  EXPECT_THAT(files_.Files(), SizeIs(1)) << "one that holds nothing does not stay";
  files_.LimitBytes(std::nullopt);
  ASSERT_EQ(tracker->Write({LossAt(2, 2)}, kLimit), absl::OkStatus());
  ASSERT_THAT(files_.Files(), SizeIs(2));
  EXPECT_THAT(Describe(files_.Content(files_.Files()[0])), SizeIs(3));
  EXPECT_THAT(Describe(files_.Content(files_.Files()[1])),
              ElementsAre("0: brain.Event:2", "2: train/loss = 2", HasSubstr("configuration")));
}

TEST_F(TensorBoardTest, SaysWhatStandsInTheWay) {
  ASSERT_TRUE(files_.MakeDirectory("/runs").ok());
  ASSERT_TRUE(files_.Create("/runs/board").ok());
  const absl::Status status = MakeTensorBoardTracker({kFolder, "0123.1", &files_})->Begin(TheRun(), kLimit);
  EXPECT_EQ(status.message(), "/runs/board/job: cannot make the directory: Not a directory");
}

// With TensorBoard itself, where Python has it (DOWNPOUR_TENSORBOARD_PYTHON).
TEST(TensorBoardPythonTest, TensorBoardReadsIt) {
  const char* const python = std::getenv("DOWNPOUR_TENSORBOARD_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "DOWNPOUR_TENSORBOARD_PYTHON is not set";
  const std::string folder = absl::StrCat(testing::TempDir(), "tensorboard_test.", getpid());
  const auto make = [&folder](const std::string& suffix) {
    auto tracker = MakeTensorBoardTracker({absl::StrCat(folder, "/job"), suffix});
    EXPECT_EQ(tracker->Begin(TheRun(), kLimit), absl::OkStatus());
    return tracker;
  };
  Point point = LossAt(2, 0.5);
  point.texts.push_back({"phase", "Training"});
  point.histograms.push_back(MakeHistogram("workers/staleness", {1, 2, 2, 5}, 4));
  auto first = make("0123.1");
  ASSERT_EQ(first->Write({LossAt(1, 1, true), point, LossAt(3, 0.25), LossAt(4, 0.125)}, kLimit), absl::OkStatus());
  // Cut off in the middle of a record, and resumed with the checkpoint of step 2.
  const std::string torn = std::filesystem::directory_iterator(folder + "/job")->path();
  std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 5);
  ASSERT_EQ(make("0123.2")->Write({LossAt(3, 0.75, true), LossAt(5, 0.5)}, kLimit), absl::OkStatus());
  std::ofstream(folder + "/check.py") << R"(import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
events.Reload()
loss = [(event.step, event.value) for event in events.Scalars("train/loss")]
assert loss == [(1, 1.0), (2, 0.5), (3, 0.75), (5, 0.5)], loss
assert events.Scalars("train/loss")[0].wall_time == 1700000001.5
(histogram,) = events.Histograms("workers/staleness")
value = histogram.histogram_value
assert (value.min, value.max, value.num, value.sum) == (1.0, 5.0, 4.0, 10.0), value
assert list(value.bucket) == [1.0, 2.0, 0.0, 1.0], value
(phase,) = events.Tensors("phase")
assert tensor_util.make_ndarray(phase.tensor_proto).tolist() == [b"Training"]
assert events.SummaryMetadata("phase").plugin_data.plugin_name == "text"
assert [event.step for event in events.Tensors("configuration")] == [1, 3]
)";
  const std::string command = absl::StrCat(python, " '", folder, "/check.py' '", folder, "/job'");
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace downpour::tracking
