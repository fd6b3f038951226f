#include "trainer/data/formats/safetensors_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "trainer/data/files/testing/memory_files.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

std::string File(const std::string& header, const std::string& values) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + values;
}

template <typename Number>
std::string Bytes(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

template <typename Number>
std::vector<Number> NumbersOf(const Value& value) {
  std::vector<Number> numbers(value.bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

absl::StatusOr<std::unique_ptr<SampleSource>> Open(MemoryFiles* files, const std::string& content,
                                                   const SafetensorsOptions& options = {}) {
  files->Put("data", content);
  return OpenSafetensors(*files, "data", options);
}

const char* const kTwo =
    R"({"label":{"dtype":"I64","shape":[3],"data_offsets":[12,36]},"image":{"dtype":"BF16","shape":[3,2],)"
    R"("data_offsets":[0,12]},"__metadata__":{"made by":"hand"}})";

std::string Two() {
  return File(kTwo,
              Bytes<std::uint16_t>({0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0}) + Bytes<std::int64_t>({7, 8, 9}));
}

TEST(SafetensorsSourceTest, TensorsAreColumns) {
  MemoryFiles files;
  const auto source = Open(&files, Two());
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), 3);
  ASSERT_EQ((*source)->columns().size(), 2U);
  EXPECT_EQ((*source)->columns()[0].name, "image");
  EXPECT_THAT((*source)->columns()[0].shape, ElementsAre(2));
  const Sample sample = (*source)->Read(1).value();
  EXPECT_THAT(NumbersOf<float>(sample[0]), ElementsAre(3, 4));
  EXPECT_THAT(NumbersOf<std::int64_t>(sample[1]), ElementsAre(8));
}

TEST(SafetensorsSourceTest, OptionsChooseTensors) {
  MemoryFiles files;
  const auto source = Open(&files, Two(), {{"label"}});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->columns().size(), 1U);
  EXPECT_THAT(NumbersOf<std::int64_t>((*source)->Read(2).value()[0]), ElementsAre(9));
  EXPECT_EQ(Open(&files, Two(), {{"text"}}).status(),
            absl::InvalidArgumentError("data: found no tensor \"text\", expected one of image, label"));
}

TEST(SafetensorsSourceTest, EveryDtypeIsRead) {
  const struct {
    const char* dtype;
    std::size_t bytes;
    ElementType type;
  } cases[] = {{"BOOL", 1, ElementType::kU8}, {"U8", 1, ElementType::kU8},    {"I8", 1, ElementType::kI32},
               {"U16", 2, ElementType::kI32}, {"I16", 2, ElementType::kI32},  {"U32", 4, ElementType::kI64},
               {"I32", 4, ElementType::kI32}, {"U64", 8, ElementType::kI64},  {"I64", 8, ElementType::kI64},
               {"F16", 2, ElementType::kF32}, {"BF16", 2, ElementType::kF32}, {"F32", 4, ElementType::kF32},
               {"F64", 8, ElementType::kF32}};
  for (const auto& c : cases) {
    MemoryFiles files;
    const auto source = Open(
        &files, File(absl::StrCat(R"({"x":{"dtype":")", c.dtype, R"(","shape":[1],"data_offsets":[0,)", c.bytes, "]}}"),
                     std::string(c.bytes, '\0')));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->columns()[0].type, c.type) << c.dtype;
    EXPECT_EQ((*source)->Read(0).value()[0].bytes, std::vector<std::byte>(BytesOf(c.type))) << c.dtype;
  }
}

TEST(SafetensorsSourceTest, WhatIsBrokenIsRefused) {
  const struct {
    std::string content;
    absl::Status status;
  } cases[] = {
      {"1234567", absl::DataLossError("data: found 7 bytes, too few for a safetensors file, expected more")},
      {File(kTwo, "").substr(0, 100),
       absl::DataLossError(absl::StrCat("data: found a header of ", strlen(kTwo), " bytes, expected no more than 92"))},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
       absl::DataLossError("data: found a header of 18446744073709551615 bytes, expected no more than 2")},
      {File("[]", ""),
       absl::DataLossError("data: the safetensors header is not a JSON object, expected one of tensors")},
      {File("{}", ""), absl::DataLossError("data: found no array, expected one or more")},
      {File(R"({"x":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "a"),
       absl::UnimplementedError(
           "data: tensor \"x\": found the dtype \"F8_E4M3\", expected one of BF16, BOOL, F16, F32, "
           "F64, I16, I32, I64, I8, U16, U32, U64, U8")},
      {File(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "a"),
       absl::DataLossError("data: tensor \"x\": data_offsets [0, 1] do not fit the shape [2] in 1 bytes of data")},
      {File(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "abc"),
       absl::DataLossError("data: tensor \"x\": data begins at 1, expected 0: a hole or an overlap")},
      {File(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "abc"),
       absl::DataLossError("data: 1 bytes of data belong to no tensor, expected none")},
      {File(R"({"x":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "ab"),
       absl::DataLossError("data: tensor \"x\": bad shape, expected its extents")},
      {File(R"({"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "a"),
       absl::DataLossError("data: tensor \"x\": found a single number, expected an array whose first dimension is the "
                           "samples")},
      {File(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "abc"),
       absl::DataLossError("data: tensor \"y\": found 2 samples, but data: tensor \"x\" has 1")},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    EXPECT_EQ(Open(&files, c.content).status(), c.status);
  }
}

TEST(SafetensorsSourceTest, BrokenValuesAreErrorsOfTheSample) {
  MemoryFiles files;
  const auto source = Open(&files, File(R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x02\x01"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(
      (*source)->Read(0).status(),
      absl::DataLossError("data: tensor \"x\": sample 0: element 0: found the byte 2, expected 0 or 1 of a bool"));
  EXPECT_TRUE((*source)->Read(1).ok());
}

TEST(SafetensorsSourceTest, ErrorsOfTheFilesArePassedOn) {
  MemoryFiles files;
  for (const std::int64_t read : {1, 2}) {
    files.FailReads(read, absl::UnavailableError("gone"));
    EXPECT_EQ(Open(&files, Two()).status(), absl::UnavailableError("data: gone")) << read;
  }
  const auto source = Open(&files, Two());
  files.Cut("data", Two().size() - 1);
  EXPECT_TRUE((*source)->Read(1).ok());
  EXPECT_EQ((*source)->Read(2).status(),
            absl::DataLossError(absl::StrCat("data: ends at byte ", Two().size() - 1, ", expected 1 more")));
  EXPECT_TRUE(absl::IsNotFound(OpenSafetensors(files, "none", {}).status()));
}

}  // namespace
}  // namespace downpour::data
