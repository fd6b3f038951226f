// Files that Python's own libraries write (tests/data/write_formats.py) are read as what they hold. Skipped unless
// DOWNPOUR_SAFETENSORS_PYTHON names a Python that has numpy and safetensors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/formats/csv_source.h"
#include "trainer/data/formats/npy_source.h"
#include "trainer/data/formats/safetensors_source.h"

namespace downpour::data {
namespace {

const char* const kTypes[] = {"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"};

double NumberAt(ElementType type, const std::vector<std::byte>& bytes, std::size_t i) {
  const auto at = [&](auto number) {
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    return static_cast<double>(number);
  };
  switch (type) {
    case ElementType::kU8:
      return at(std::uint8_t{});
    case ElementType::kI32:
      return at(std::int32_t{});
    case ElementType::kI64:
      return at(std::int64_t{});
    case ElementType::kF32:
      break;
  }
  return at(float{});
}

std::string TextOf(const Value& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

class PythonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const python = std::getenv("DOWNPOUR_SAFETENSORS_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "DOWNPOUR_SAFETENSORS_PYTHON names no Python";
    std::string pattern = ::testing::TempDir() + "/formats-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ASSERT_EQ(std::system(absl::StrCat("'", python, "' tests/data/write_formats.py '", folder_, "'").c_str()), 0);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // `source` has a column each name, with the values 0, 1, 2, ...; of bools, whether these are odd.
  static void ExpectNumbers(const absl::StatusOr<std::unique_ptr<SampleSource>>& source,
                            const std::vector<std::string>& names) {
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_EQ((*source)->size(), 4);
    ASSERT_EQ((*source)->columns().size(), names.size());
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto sample = (*source)->Read(i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      for (const std::string& name : names) {
        std::size_t column = 0;
        while (column < names.size() && (*source)->columns()[column].name != name) ++column;
        ASSERT_LT(column, names.size()) << name;
        EXPECT_EQ((*sample)[column].shape, (std::vector<std::int64_t>{3, 2})) << name;
        for (std::size_t j = 0; j < 6; ++j) {
          const auto number = static_cast<double>(i) * 6 + static_cast<double>(j);
          EXPECT_EQ(NumberAt((*source)->columns()[column].type, (*sample)[column].bytes, j),
                    absl::StartsWith(name, "b1") ? static_cast<double>(j % 2) : number)
              << name;
        }
      }
    }
  }

  std::string folder_;
};

TEST_F(PythonTest, NumPy) {
  std::vector<std::string> names;
  for (const char* const type : kTypes) {
    for (const char* const order : {"little", "big"}) {
      NpyOptions options;
      options.column = "";
      const std::string name = absl::StrCat(type, "_", order);
      ExpectNumbers(OpenNpy(LocalFiles(), absl::StrCat(folder_, "/", name, ".npy"), options), {name});
    }
    names.emplace_back(type);
  }
  ExpectNumbers(OpenNpy(LocalFiles(), folder_ + "/stored.npz", {}), names);
  ExpectNumbers(OpenNpy(LocalFiles(), folder_ + "/deflated.npz", {}), names);
  EXPECT_TRUE(absl::IsUnimplemented(OpenNpy(LocalFiles(), folder_ + "/fortran.npy", {}).status()));
  EXPECT_TRUE(OpenNpy(LocalFiles(), folder_ + "/scalars.npy", {}).ok());
}

TEST_F(PythonTest, Safetensors) {
  ExpectNumbers(OpenSafetensors(LocalFiles(), folder_ + "/data.safetensors", {}),
                std::vector<std::string>(std::begin(kTypes), std::end(kTypes)));
}

TEST_F(PythonTest, Csv) {
  const std::vector<std::string> texts = {"plain",        "with \"quotes\"",
                                          "a, comma",     "two\nlines",
                                          "two\r\nlines", "",
                                          " blanks ",     "\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80"};
  const auto source = OpenCsv(LocalFiles(), folder_ + "/data.csv", {});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), 100);
  EXPECT_EQ((*source)->columns()[0].type, ElementType::kI64);
  EXPECT_EQ((*source)->columns()[1].type, ElementType::kF32);
  for (std::int64_t i = 0; i < 100; ++i) {
    const auto sample = (*source)->Read(i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(NumberAt(ElementType::kI64, (*sample)[0].bytes, 0), static_cast<double>(i - 50));
    EXPECT_EQ(NumberAt(ElementType::kF32, (*sample)[1].bytes, 0), static_cast<double>(i) / 4);
    EXPECT_EQ(TextOf((*sample)[2]), texts[static_cast<std::size_t>(i) % texts.size()]);
  }
  CsvOptions options;
  options.header = false;
  options.delimiter = ';';
  const auto one = OpenCsv(LocalFiles(), folder_ + "/one.csv", options);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ((*one)->size(), static_cast<std::int64_t>(texts.size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(TextOf((*one)->Read(static_cast<std::int64_t>(i)).value()[0]), texts[i]);
  }
}

}  // namespace
}  // namespace downpour::data
