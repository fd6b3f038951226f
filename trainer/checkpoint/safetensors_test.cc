#include "trainer/checkpoint/safetensors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

// The call that fails from now on, and how: a file system that has not all of them.
std::string failing_call;
int failing_error = 0;

bool FailsNow(const std::string& call) {
  if (call != failing_call) return false;
  errno = failing_error;
  return true;
}

}  // namespace

// In place of libc's, for the whole program.
extern "C" {

int fsync(int descriptor) {
  struct stat status {};
  fstat(descriptor, &status);
  if (FailsNow(S_ISDIR(status.st_mode) ? "fsync directory" : "fsync file")) return -1;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

int fchmod(int descriptor, mode_t mode) noexcept {
  return FailsNow("chmod") ? -1 : static_cast<int>(syscall(SYS_fchmod, descriptor, mode));
}

int chmod(const char* path, mode_t mode) noexcept {
  return FailsNow("chmod") ? -1 : static_cast<int>(syscall(SYS_fchmodat, AT_FDCWD, path, mode));
}

int rename(const char* from, const char* to) noexcept {
  return FailsNow("rename") ? -1 : static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

ssize_t write(int descriptor, const void* data, std::size_t size) {
  return descriptor > STDERR_FILENO && FailsNow("write") ? -1 : syscall(SYS_write, descriptor, data, size);
}

}  // extern "C"

namespace downpour::checkpoint {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Bytes ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Bytes File(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  Bytes bytes(sizeof(length) + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::copy(header.begin(), header.end(), bytes.begin() + sizeof(length));
  return bytes;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 (std::string("safetensors_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    path_ = (directory_ / "model.safetensors").string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::ptrdiff_t FileCount() const {
    return std::distance(std::filesystem::directory_iterator(directory_), std::filesystem::directory_iterator());
  }

  std::filesystem::path directory_;
  std::string path_;
};

TEST_F(SafetensorsTest, BytesAreThoseOfTheFormat) {
  const std::vector<float> weight{1.0F, -2.5F};
  const std::vector<float> bias{0.5F};
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", {1, 2}, weight}, {"b", {1}, bias}}, {{"job", "x"}}).ok());
  std::string header = R"({"__metadata__":{"job":"x"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  Bytes expected = File(header, 12);
  std::memcpy(expected.data() + expected.size() - 12, weight.data(), 8);
  std::memcpy(expected.data() + expected.size() - 4, bias.data(), 4);
  EXPECT_EQ(ReadBytes(path_), expected);
  EXPECT_EQ(expected.size() % 4, 0U);
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(SafetensorsTest, ReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<float>> values(random() % 6);
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::vector<std::int64_t> shape(random() % 4);
      std::int64_t elements = 1;
      for (std::int64_t& extent : shape) elements *= extent = static_cast<std::int64_t>(random() % 6);
      values[i].resize(static_cast<std::size_t>(elements));
      for (float& value : values[i]) value = static_cast<float>(random()) / 1e18F - 5.0F;
      tensors.push_back({"layer" + std::to_string(i) + "\"\\\xc3\xa9\n", shape, values[i]});
    }
    std::map<std::string, std::string> metadata;
    for (std::uint64_t i = random() % 3; i > 0; --i) metadata["key" + std::to_string(i)] = std::to_string(random());
    ASSERT_TRUE(WriteSafetensors(path_, tensors, metadata).ok());
    const auto file = ReadSafetensors(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->metadata, metadata);
    ASSERT_EQ(file->tensors.size(), tensors.size());
    for (const NamedTensor& tensor : tensors) {
      const LoadedTensor& loaded = file->tensors.at(tensor.name);
      EXPECT_EQ(loaded.shape, tensor.shape);
      EXPECT_TRUE(std::equal(loaded.values.begin(), loaded.values.end(), tensor.values.begin(), tensor.values.end()));
    }
  }
}

// The format as its specification has it, read by code that shares nothing with ours.
TEST_F(SafetensorsTest, OpensInPython) {
  if (std::system("python3 -c pass") != 0) FAIL() << "no python3";
  const std::vector<float> weight{1.0F, -2.5F, 3.25F, 0.0F, 1e-20F, 6.0F};
  ASSERT_TRUE(WriteSafetensors(path_, {{"fc.weight", {2, 3}, weight}, {"fc.bias", {2}, {weight.data() + 2, 2}}},
                               {{"format", "pt"}})
                  .ok());
  const std::string script = (directory_ / "check.py").string();
  std::ofstream(script) << R"(import json, struct, sys
raw = open(sys.argv[1], "rb").read()
(size,) = struct.unpack("<Q", raw[:8])
assert size % 8 == 0 and raw[8:9] == b"{"
header = json.loads(raw[8:8 + size])
assert header.pop("__metadata__") == {"format": "pt"}
data, end, tensors = raw[8 + size:], 0, {}
for name, entry in header.items():
    begin, stop = entry["data_offsets"]
    count = 1
    for extent in entry["shape"]:
        count *= extent
    assert entry["dtype"] == "F32" and begin == end and stop - begin == 4 * count
    tensors[name] = (entry["shape"], struct.unpack("<%df" % count, data[begin:stop]))
    end = stop
assert end == len(data)
single = struct.unpack("<f", struct.pack("<f", 1e-20))[0]
assert tensors["fc.weight"] == ([2, 3], (1.0, -2.5, 3.25, 0.0, single, 6.0)), tensors
assert tensors["fc.bias"] == ([2], (3.25, 0.0)), tensors
)";
  EXPECT_EQ(std::system(("python3 '" + script + "' '" + path_ + "'").c_str()), 0);
}

TEST_F(SafetensorsTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  const std::vector<float> small{1.0F};
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", {1}, small}}, {}).ok());
  const Bytes before = ReadBytes(path_);

  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::vector<float> large(100'000, 2.0F);
  const absl::Status status = WriteSafetensors(path_, {{"w", {100'000}, large}}, {}).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), path_ + ": cannot write: File too large");
  EXPECT_EQ(ReadBytes(path_), before);
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(SafetensorsTest, TheModeFollowsTheUmask) {
  const std::vector<float> small{1.0F};
  for (const mode_t mask : {0002U, 0022U, 0077U}) {
    const mode_t before = ::umask(mask);
    const absl::Status status = WriteSafetensors(path_, {{"w", {1}, small}}, {}).status();
    ::umask(before);
    ASSERT_TRUE(status.ok()) << status;
    struct stat file {};
    ASSERT_EQ(::stat(path_.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0666 & ~mask);
  }
}

TEST_F(SafetensorsTest, WriteErrorsNameThePath) {
  const std::vector<float> values{1.0F, 2.0F};
  const std::string absent = (directory_ / "absent" / "model.safetensors").string();
  EXPECT_EQ(WriteSafetensors(absent, {{"w", {2}, values}}, {}).status().message(),
            absent + ": cannot create: No such file or directory");
  EXPECT_EQ(WriteSafetensors(path_, {{"w", {3}, values}}, {}).status().message(),
            path_ + ": tensor \"w\": 2 values do not fill the shape [3]");
  EXPECT_EQ(WriteSafetensors(path_, {{"w", {2}, values}, {"w", {2}, values}}, {}).status().message(),
            path_ + ": tensor \"w\": the name is taken");
  EXPECT_EQ(WriteSafetensors(path_, {{"__metadata__", {2}, values}}, {}).status().message(),
            path_ + ": tensor \"__metadata__\": the name is taken");
  EXPECT_EQ(WriteSafetensors(path_, {{"\xff", {2}, values}}, {}).status().message(),
            path_ + ": a name or a metadata value is not UTF-8");
  // A directory in the way: the rename fails, and what is whole is not thrown away.
  std::filesystem::create_directories(path_);
  const std::string message(WriteSafetensors(path_, {{"w", {2}, values}}, {}).status().message());
  const std::string whole = "; the file is whole as ";
  EXPECT_THAT(message, HasSubstr(": cannot rename: "));
  ASSERT_THAT(message, HasSubstr(whole));
  const auto kept = ReadSafetensors(message.substr(message.find(whole) + whole.size()));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->tensors.at("w").values, values);
  EXPECT_EQ(FileCount(), 2);
}

// What a file system may answer to each step, and what becomes of the file.
struct FileSystemCase {
  const char* name;
  const char* call;
  int error;
  bool writes;     // the file is there, whole
  bool warns;      // and may be lost
  bool can_write;  // what the check says before
};

class FileSystemTest : public SafetensorsTest, public ::testing::WithParamInterface<FileSystemCase> {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) / (std::string("file_system_") + GetParam().name);
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    path_ = (directory_ / "model.safetensors").string();
  }
  void TearDown() override {
    failing_call = "";
    SafetensorsTest::TearDown();
  }
};

TEST_P(FileSystemTest, IsDoneWithoutWhatItHasNotAndReportedWhereItFails) {
  const std::vector<float> values{1.0F, 2.0F};
  failing_call = GetParam().call;
  failing_error = GetParam().error;
  const absl::Status can_write = CheckWritable(path_);
  EXPECT_EQ(can_write.ok(), GetParam().can_write) << can_write;
  EXPECT_EQ(FileCount(), 0) << "the check leaves nothing";
  const auto written = WriteSafetensors(path_, {{"w", {2}, values}}, {});
  failing_call = "";
  EXPECT_EQ(written.ok(), GetParam().writes) << written.status();
  if (!written.ok()) {
    EXPECT_THAT(std::string(written.status().message()), HasSubstr(std::strerror(GetParam().error)));
    return;
  }
  EXPECT_EQ(written->warning.empty(), !GetParam().warns) << written->warning;
  if (GetParam().warns) {
    EXPECT_THAT(written->warning, HasSubstr(std::strerror(GetParam().error)));
  }
  const auto loaded = ReadSafetensors(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->tensors.at("w").values, values);
  EXPECT_EQ(FileCount(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, FileSystemTest,
    ::testing::Values(FileSystemCase{"NoModes", "chmod", EPERM, true, false, true},
                      FileSystemCase{"ModesNotSupported", "chmod", ENOTSUP, true, false, true},
                      FileSystemCase{"NoFsync", "fsync file", EINVAL, true, false, true},
                      FileSystemCase{"FsyncFails", "fsync file", EIO, false, false, false},
                      FileSystemCase{"FsyncFindsTheDiskFull", "fsync file", ENOSPC, false, false, false},
                      FileSystemCase{"NoFsyncOfDirectories", "fsync directory", EINVAL, true, false, true},
                      FileSystemCase{"DirectoriesMayNotBeSynced", "fsync directory", EPERM, true, false, true},
                      FileSystemCase{"FsyncOfTheDirectoryFails", "fsync directory", EIO, true, true, false},
                      FileSystemCase{"NoRename", "rename", ENOSYS, false, false, false},
                      FileSystemCase{"RenameMayNot", "rename", EPERM, false, false, false},
                      FileSystemCase{"WriteFails", "write", EIO, false, false, false},
                      FileSystemCase{"DiskFull", "write", ENOSPC, false, false, false}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(SafetensorsTest, WhatCannotBecomeTheModelIsSaidBefore) {
  EXPECT_TRUE(CheckWritable(path_).ok());
  std::ofstream(path_) << "an older model";
  EXPECT_TRUE(CheckWritable(path_).ok());
  EXPECT_EQ(std::filesystem::file_size(path_), 14U) << "it is left alone";
  EXPECT_EQ(FileCount(), 1);
  std::filesystem::remove(path_);
  std::filesystem::create_directories(path_);
  EXPECT_EQ(CheckWritable(path_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckWritable(path_).message(), path_ + ": is a directory, expected a file or nothing");
  const std::string absent = (directory_ / "absent" / "model.safetensors").string();
  EXPECT_EQ(CheckWritable(absent).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckWritable(absent).message(), absent + ": cannot create: No such file or directory");
}

TEST(CheckFiniteTest, SaysHowManyValuesAndWhere) {
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> whole{1, -3e38F, 0, 1e-45F};
  const std::vector<float> broken{1, infinite, -infinite, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(CheckFinite({}).ok());
  EXPECT_TRUE(CheckFinite({{"a", {4}, whole}, {"empty", {0}, {}}}).ok());
  EXPECT_EQ(CheckFinite({{"a", {4}, whole}, {"b", {4}, broken}, {"c", {4}, broken}}).message(),
            "6 of 12 values in 2 of 3 tensors are not finite, first in b (3 of 4)");
}

TEST_F(SafetensorsTest, ReadErrorsNameThePath) {
  EXPECT_EQ(ReadSafetensors(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSafetensors(path_).status().message(), path_ + ": cannot open: No such file or directory");
  std::ofstream(path_) << "abc";
  EXPECT_EQ(ReadSafetensors(path_).status().message(), path_ + ": 3 bytes, too short for a safetensors file");
}

TEST(ParseSafetensors, RefusesWhatTheFormatForbids) {
  const std::string whole = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_TRUE(ParseSafetensors(File(whole, 8)).ok());
  ASSERT_TRUE(ParseSafetensors(File("{}", 0)).ok());
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", 0, "not a JSON object"},
      {" " + whole, 8, "not a JSON object"},
      {"{", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {whole + "x", 8, "not a JSON object"},
      {std::string(200'000, '['), 0, "not a JSON object"},
      {R"({"a":{"dtype":"F32","shape":[[[2]]],"data_offsets":[0,8]}})", 8, "not a JSON object"},
      {R"({"a":3})", 0, "\"a\" is not an object"},
      {R"({"__metadata__":{"k":3}})", 0, "metadata \"k\" is not a string"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no dtype"},
      {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 8, "dtype \"BF16\", only F32 is supported"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "no shape"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "bad shape"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "bad shape"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "bad data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "bad data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "bad data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not fit"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not fit"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 8, "do not fit"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}})", 8, "do not fit"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "a hole or an overlap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, "a hole or an overlap"},
      {whole, 12, "4 bytes of data belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8, "appears twice"},
  };
  for (const Case& c : cases) {
    const auto file = ParseSafetensors(File(c.header, c.data_bytes));
    ASSERT_FALSE(file.ok()) << c.header.substr(0, 200);
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(c.message)) << c.header.substr(0, 200);
  }
  Bytes lying = File(whole, 8);
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{63}, ~std::uint64_t{0}}) {
    std::memcpy(lying.data(), &length, sizeof(length));
    EXPECT_FALSE(ParseSafetensors(lying).ok()) << length;
  }
}

// Whatever the bytes: an answer, and if they are taken, every byte of data in exactly one tensor.
TEST(ParseSafetensors, RandomDamageIsRefusedOrConsistent) {
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}})";
  const Bytes good = File(header, 28);
  const std::string alphabet = "0123456789{}[]\",:-eE.FabkshapedtypetrueN \\u";
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    std::mt19937_64 random(seed);
    Bytes bytes = good;
    for (std::uint64_t damage = 1 + random() % 4; damage > 0 && !bytes.empty(); --damage) {
      const std::size_t at = random() % std::min<std::size_t>(bytes.size(), 8 + header.size() + 4);
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<std::uint8_t>(random());
          break;
        case 1:
          bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        case 2:
          bytes.resize(random() % (bytes.size() + 16));
          break;
        default:
          bytes[at] = static_cast<std::uint8_t>(alphabet[random() % alphabet.size()]);
      }
    }
    const auto file = ParseSafetensors(bytes);
    if (!file.ok()) continue;
    std::uint64_t header_size = 0;
    std::memcpy(&header_size, bytes.data(), sizeof(header_size));
    std::size_t data = 0;
    for (const auto& [name, tensor] : file->tensors) {
      std::int64_t elements = 1;
      for (std::int64_t extent : tensor.shape) elements *= extent;
      ASSERT_EQ(static_cast<std::int64_t>(tensor.values.size()), elements) << "seed " << seed;
      data += tensor.values.size() * sizeof(float);
    }
    EXPECT_EQ(8 + header_size + data, bytes.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace downpour::checkpoint
