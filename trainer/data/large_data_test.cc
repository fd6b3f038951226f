// Data much larger than memory: files with holes, opened and read at random. DOWNPOUR_LARGE_DATA_GIB: how large, 1 if
// it is not set.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensorflow_example.pb.h"
#include "tests/support/process_memory.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/npy_source.h"
#include "trainer/data/formats/testing/record_builder.h"
#include "trainer/data/formats/tf_record.h"
#include "trainer/data/random.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kMostResidentBytes = std::int64_t{64} << 20;
constexpr std::int64_t kSampleBytes = std::int64_t{1} << 20;
constexpr int kReads = 500;

std::int64_t Gibibytes() {
  const char* const text = std::getenv("DOWNPOUR_LARGE_DATA_GIB");
  std::int64_t gibibytes = 1;
  if (text != nullptr && !absl::SimpleAtoi(text, &gibibytes)) gibibytes = 1;
  return std::max<std::int64_t>(gibibytes, 1);
}

// A file that only has blocks where something is written.
class SparseFile {
 public:
  explicit SparseFile(const std::string& name)
      : folder_(absl::StrCat(::testing::TempDir(), "large-data-", ::getpid())),
        path_(absl::StrCat(folder_, "/", name)) {
    std::filesystem::create_directories(folder_);
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
  ~SparseFile() {
    ::close(descriptor_);
    std::filesystem::remove_all(folder_);
  }
  SparseFile(const SparseFile&) = delete;
  SparseFile& operator=(const SparseFile&) = delete;

  const std::string& path() const { return path_; }
  bool SetSize(std::int64_t bytes) { return ::ftruncate(descriptor_, bytes) == 0; }
  // Leaves out what is zero.
  bool Write(const std::string& bytes, std::int64_t offset) {
    constexpr std::size_t kPiece = 4096;
    for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece) {
      const std::string piece = bytes.substr(begin, kPiece);
      if (piece.find_first_not_of('\0') == std::string::npos) continue;
      const auto at = static_cast<off_t>(offset + static_cast<std::int64_t>(begin));
      if (::pwrite(descriptor_, piece.data(), piece.size(), at) != static_cast<ssize_t>(piece.size())) return false;
    }
    return true;
  }

 private:
  const std::string folder_;
  const std::string path_;
  int descriptor_ = -1;
};

// Samples at random; `check` is called with each.
template <typename Check>
void ReadAtRandom(const SampleSource& source, std::int64_t resident_before, const Check& check) {
  Random random(1, 0, 0);
  for (int i = 0; i < kReads; ++i) {
    const auto index = static_cast<std::int64_t>(random.Fraction() * static_cast<double>(source.size()));
    const absl::StatusOr<Sample> sample = source.Read(index);
    ASSERT_TRUE(sample.ok()) << sample.status();
    check(index, *sample);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(ProcessMemory("VmRSS") - resident_before, kMostResidentBytes);
#else
  (void)resident_before;  // a sanitizer keeps what is freed
#endif
}

TEST(LargeDataTest, NpyIsReadByRanges) {
  const std::int64_t samples = Gibibytes() * 1024;
  SparseFile file("values.npy");
  std::string header =
      absl::StrCat("{'descr': '|u1', 'fortran_order': False, 'shape': (", samples, ", ", kSampleBytes, "), }");
  header.resize(117, ' ');
  header.push_back('\n');
  const std::string begin = absl::StrCat(std::string("\x93NUMPY\x01\x00\x76\x00", 10), header);
  ASSERT_EQ(begin.size(), 128U);
  ASSERT_TRUE(file.SetSize(128 + samples * kSampleBytes) && file.Write(begin, 0));
  for (std::int64_t i = 0; i < samples; ++i) {
    ASSERT_TRUE(file.Write(std::string(1, static_cast<char>(1 + i % 100)), 128 + i * kSampleBytes));
  }
  const std::int64_t before = ProcessMemory("VmRSS");
  const auto source = OpenNpy(LocalFiles(), file.path(), {});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), samples);
  ReadAtRandom(**source, before, [](std::int64_t index, const Sample& sample) {
    ASSERT_EQ(sample[0].bytes.size(), static_cast<std::size_t>(kSampleBytes));
    EXPECT_EQ(std::to_integer<int>(sample[0].bytes[0]), 1 + index % 100) << index;
  });
}

TEST(LargeDataTest, OfTfRecordsAnIndexIsInMemory) {
  const std::int64_t samples = Gibibytes() * 1024;
  SparseFile file("a.tfrecord");
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["values"].mutable_bytes_list()->add_value(std::string(kSampleBytes, '\0'));
  features["label"].mutable_int64_list()->add_value(0);
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    features["label"].mutable_int64_list()->set_value(0, i);
    const std::string record = Record(example.SerializeAsString());
    ASSERT_TRUE(file.Write(record, end));
    end += static_cast<std::int64_t>(record.size());
  }
  ASSERT_TRUE(file.SetSize(end));
  const std::int64_t before = ProcessMemory("VmRSS");
  TfRecordOptions options;
  options.features = {{.name = "label", .kind = TfRecordFeature::Kind::kIntegers},
                      {.name = "values", .kind = TfRecordFeature::Kind::kBytes, .shape = {kSampleBytes}}};
  const auto source = OpenTfRecord(LocalFiles(), file.path(), options);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), samples);
  ReadAtRandom(**source, before, [](std::int64_t index, const Sample& sample) {
    EXPECT_EQ(*reinterpret_cast<const std::int64_t*>(sample[0].bytes.data()), index);
    EXPECT_EQ(sample[1].bytes.size(), static_cast<std::size_t>(kSampleBytes));
  });
}

}  // namespace
}  // namespace downpour::data
