#include "trainer/data/formats/csv_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/index_file.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

template <typename Number>
Number NumberOf(const Value& value) {
  Number number{};
  EXPECT_EQ(value.bytes.size(), sizeof(number));
  EXPECT_TRUE(value.shape.empty());
  if (value.bytes.size() == sizeof(number)) std::memcpy(&number, value.bytes.data(), sizeof(number));
  return number;
}

std::string TextOf(const Value& value) {
  EXPECT_THAT(value.shape, ElementsAre(static_cast<std::int64_t>(value.bytes.size())));
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::string Describe(const SampleSource& source) {
  std::string text;
  for (const Column& column : source.columns()) {
    absl::StrAppend(&text, column.name, ":", column.text ? "text" : Name(column.type), " ");
  }
  return text;
}

std::unique_ptr<SampleSource> Open(const MemoryFiles& files, const CsvOptions& options = {}) {
  auto source = OpenCsv(files, "data", options);
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

std::unique_ptr<SampleSource> Open(MemoryFiles* files, const std::string& content, const CsvOptions& options = {}) {
  files->Put("data", content);
  return Open(*files, options);
}

TEST(CsvSourceTest, GuessesTypesAndReadsWhatIsQuoted) {
  MemoryFiles files;
  const auto source = Open(&files,
                           "\xef\xbb\xbfid,price,\"the \"\"name\"\"\",\n"
                           "1,1.5,plain,3\r\n"
                           "\n"
                           "-2,2,\"a, \"\"b\"\"\r\nc\",4\r\n"
                           "3,nan,,5");
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(Describe(*source), "id:i64 price:fp32 the \"name\":text column_3:i64 ");
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(NumberOf<std::int64_t>(source->Read(1).value()[0]), -2);
  EXPECT_EQ(NumberOf<float>(source->Read(0).value()[1]), 1.5F);
  EXPECT_EQ(TextOf(source->Read(1).value()[2]), "a, \"b\"\r\nc");
  EXPECT_EQ(TextOf(source->Read(2).value()[2]), "");
  EXPECT_EQ(NumberOf<std::int64_t>(source->Read(2).value()[3]), 5);
}

TEST(CsvSourceTest, TypesAreThoseOfTheOptions) {
  MemoryFiles files;
  CsvOptions options;
  options.header = false;
  options.delimiter = ';';
  options.columns = {{"column_0", {CsvType::kU8, {}}},          {"column_1", {CsvType::kI32, {}}},
                     {"column_2", {CsvType::kF32, {}}},         {"column_3", {CsvType::kText, {}}},
                     {"column_4", {CsvType::kCategorical, {}}}, {"column_5", {CsvType::kCategorical, {"yes", "no"}}},
                     {"column_6", {CsvType::kCategorical, {}}}};
  const auto source = Open(&files, "255; -7 ;+1e-50;1;red;no;10\n0;8;.25;2;blue;yes;9\n", options);
  ASSERT_NE(source, nullptr);
  const Sample sample = source->Read(0).value();
  EXPECT_EQ(NumberOf<std::uint8_t>(sample[0]), 255);
  EXPECT_EQ(NumberOf<std::int32_t>(sample[1]), -7);
  EXPECT_EQ(NumberOf<float>(sample[2]), 0.F);
  EXPECT_EQ(TextOf(sample[3]), "1");
  EXPECT_EQ(NumberOf<std::int64_t>(sample[4]), 1);
  EXPECT_EQ(NumberOf<std::int64_t>(sample[5]), 1);
  EXPECT_EQ(NumberOf<std::int64_t>(sample[6]), 1);
  EXPECT_THAT(source->columns()[4].class_names, ElementsAre("blue", "red"));
  EXPECT_EQ(source->columns()[4].classes, 2);
  EXPECT_THAT(source->columns()[5].class_names, ElementsAre("yes", "no"));
  EXPECT_THAT(source->columns()[6].class_names, ElementsAre("9", "10")) << "sorted as numbers";
}

TEST(CsvSourceTest, FilesOfADirectoryFollowOneAnother) {
  MemoryFiles files;
  files.Put("data/b.csv", "x,y\n3,c\n");
  files.Put("data/a.csv", "x,y\n1,a\n2,b");
  files.Put("data/README", "not this one");
  const auto source = Open(files);
  ASSERT_NE(source, nullptr);
  std::string all;
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const Sample sample = source->Read(i).value();
    absl::StrAppend(&all, NumberOf<std::int64_t>(sample[0]), TextOf(sample[1]), " ");
  }
  EXPECT_EQ(all, "1a 2b 3c ");
}

// Written as RFC 4180 says, and read again.
TEST(CsvSourceTest, ReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t columns = 1 + random() % 5;
    const std::size_t rows = random() % 60;
    const char* const ends[] = {"\n", "\r\n"};
    std::string content;
    std::vector<std::vector<std::string>> expected;
    CsvOptions options;
    for (std::size_t column = 0; column < columns; ++column) {
      absl::StrAppend(&content, column == 0 ? "" : ",", "c", column);
      options.columns[absl::StrCat("c", column)] = {CsvType::kText, {}};
    }
    content += "\n";
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<std::string> fields;
      for (std::size_t column = 0; column < columns; ++column) {
        std::string field;
        for (std::uint64_t left = random() % 6; left > 0; --left) field += "ab,\"\n\r\xc3\xa4;"[random() % 6];
        if (random() % 8 == 0) field += "\xc3\xa4";
        std::string doubled;
        for (const char c : field) doubled += c == '"' ? "\"\"" : std::string(1, c);
        const bool quoted =
            field.find_first_of(",\"\r\n") != std::string::npos || (columns == 1 && field.empty()) || random() % 4 == 0;
        absl::StrAppend(&content, column == 0 ? "" : ",", quoted ? absl::StrCat("\"", doubled, "\"") : field);
        fields.push_back(field);
      }
      if (row + 1 < rows || random() % 2 == 0) content += ends[random() % 2];
      expected.push_back(fields);
    }
    MemoryFiles files;
    const auto source = Open(&files, content, options);
    ASSERT_NE(source, nullptr) << seed;
    ASSERT_EQ(source->size(), static_cast<std::int64_t>(rows)) << seed;
    for (std::size_t row = 0; row < rows; ++row) {
      const Sample sample = source->Read(static_cast<std::int64_t>(row)).value();
      for (std::size_t column = 0; column < columns; ++column) {
        EXPECT_EQ(TextOf(sample[column]), expected[row][column]) << seed;
      }
    }
  }
}

TEST(CsvSourceTest, RowsAcrossBlocksAreWhole) {
  std::string content = "a,b\n";
  const std::string large(700'000, 'x');
  for (int i = 0; i < 5; ++i) absl::StrAppend(&content, i, ",\"", large, "\n\"\r\n");
  MemoryFiles files;
  const auto source = Open(&files, content);
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(source->size(), 5);
  for (std::int64_t i = 0; i < 5; ++i) {
    const Sample sample = source->Read(i).value();
    EXPECT_EQ(NumberOf<std::int64_t>(sample[0]), i);
    EXPECT_EQ(TextOf(sample[1]), large + "\n");
  }
}

TEST(CsvSourceTest, WhatIsBrokenIsRefused) {
  const struct {
    std::string content;
    std::string message;
  } cases[] = {
      {"", "data: line 1: found the end of the file, expected a header"},
      {"a,b\n1,2\n1,2,3\n", "data: line 3: found 3 fields, expected 2: \"a, b\""},
      {"a,b\n\n1\n", "data: line 3: found 1 fields, expected 2: \"a, b\""},
      {"a,a\n1,2\n", "data: line 1: found the column \"a\" twice, expected names that differ"},
      {"a,\xff\n1,2\n", "data: line 1: the name of column 2: found the byte 0xff, expected UTF-8"},
      {"a,b\n1,\"x\n\n",
       "data: line 2: column \"b\": found the end of the file, expected a quote that closes the field"},
      {"a,b\n\"1\"2,3\n",
       "data: line 2: column \"a\": found \"2\" behind the quote that closes the field, expected \",\" or the end of "
       "the "
       "line"},
      {"a,b\n5\" pipe,3\n",
       "data: line 2: column \"a\": found a quote behind \"5\", expected the whole field in quotes, and those within "
       "it "
       "twice"},
      {"a,b\n1,2\r3,4\n",
       "data: line 2: column \"b\": found a carriage return without a line feed, expected both or a line feed alone"},
      {"a,b\n\"x\ny\",\"z\" \n",
       "data: line 3: column \"b\": found \" \" behind the quote that closes the field, expected \",\" or the end of "
       "the "
       "line"},
      {"a\nx\n\"" + std::string((std::size_t{64} << 20) + 1, 'x') + "\"",
       "data: line 3: found a row of more than 67108864 bytes, expected shorter ones: is a quote not closed?"},
      {std::string(100'001, ','), "data: line 1: column 100001: found more than 100000 fields, expected no more"},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    files.Put("data", c.content);
    EXPECT_EQ(OpenCsv(files, "data", {}).status(), absl::DataLossError(c.message));
  }
}

TEST(CsvSourceTest, DirectoriesThatDoNotFitAreRefused) {
  MemoryFiles files;
  files.Put("data/a.csv", "x,y\n1,2\n");
  files.Put("data/b.csv", "y,x\n1,2\n");
  EXPECT_EQ(
      OpenCsv(files, "data", {}).status(),
      absl::DataLossError("data/b.csv: line 1: found the columns \"y, x\", expected those of data/a.csv: \"x, y\""));
  files.Put("data/b.csv", "\n\n");
  EXPECT_EQ(OpenCsv(files, "data", {}).status(),
            absl::DataLossError("data/b.csv: line 3: found the end of the file, expected a header"));
  CsvOptions options;
  options.suffix = ".tsv";
  EXPECT_EQ(OpenCsv(files, "data", options).status(),
            absl::NotFoundError("data: found no file whose name ends in \".tsv\", expected one or more"));
  options.header = false;
  options.suffix = ".csv";
  files.Put("data/a.csv", "");
  EXPECT_EQ(OpenCsv(files, "data", options).status(),
            absl::DataLossError("data/a.csv: found no row, expected one or more"));
}

TEST(CsvSourceTest, OptionsThatDoNotFitAreRefused) {
  MemoryFiles files;
  files.Put("data", "a,b\n1,2\n");
  CsvOptions options;
  options.columns["c"] = {CsvType::kF32, {}};
  EXPECT_EQ(OpenCsv(files, "data", options).status(),
            absl::InvalidArgumentError("data: found no column \"c\", expected one of a, b"));
  options.columns = {{"a", {CsvType::kF32, {"x"}}}};
  EXPECT_EQ(OpenCsv(files, "data", options).status(),
            absl::InvalidArgumentError("data: column \"a\": found names of classes, but it is not categorical"));
  options.columns = {{"a", {CsvType::kCategorical, {"x", "x"}}}};
  EXPECT_EQ(
      OpenCsv(files, "data", options).status(),
      absl::InvalidArgumentError("data: column \"a\": found the name of a class twice, expected names that differ"));
  options.columns.clear();
  options.delimiter = '"';
  EXPECT_TRUE(absl::IsInvalidArgument(OpenCsv(files, "data", options).status()));
}

// A broken field is an error of its own sample, with the line where its row begins; the others are read.
TEST(CsvSourceTest, WhatIsWrongWithAFieldIsAnErrorOfTheRow) {
  const struct {
    CsvType type;
    std::string field;
    std::string problem;
  } cases[] = {
      {CsvType::kU8, "256", "found \"256\", expected a number from 0 to 255 (u8)"},
      {CsvType::kU8, "-1", "found \"-1\", expected a number from 0 to 255 (u8)"},
      {CsvType::kI32, "2147483648", "found \"2147483648\", expected an integer of 32 bits (i32)"},
      {CsvType::kI64, "9223372036854775808", "found \"9223372036854775808\", expected an integer of 64 bits (i64)"},
      {CsvType::kI64, "1.0", "found \"1.0\", expected an integer of 64 bits (i64)"},
      {CsvType::kI64, "", "found an empty field, expected an integer of 64 bits (i64)"},
      {CsvType::kF32, "1e39", "found \"1e39\", expected a number that a 32 bit float can hold (f32)"},
      {CsvType::kF32, "+-1", "found \"+-1\", expected a number that a 32 bit float can hold (f32)"},
      {CsvType::kF32, "one", "found \"one\", expected a number that a 32 bit float can hold (f32)"},
      {CsvType::kText, "a\xc0\x80", "found the byte 0xc0, expected UTF-8"},
      {CsvType::kText, std::string("a\0b", 3), "found a NUL byte, expected text"},
      {CsvType::kCategorical, "\xed\xa0\x80", "found the byte 0xed, expected UTF-8"},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    CsvOptions options;
    options.columns["value"] = {c.type, {}};
    const auto source =
        Open(&files, absl::StrCat("text,value\n\"two\nlines\",7\n\n", "x,", c.field, "\ny,8\n"), options);
    ASSERT_NE(source, nullptr);
    EXPECT_TRUE(source->Read(0).ok());
    EXPECT_EQ(source->Read(1).status(),
              absl::DataLossError(absl::StrCat("data: line 5: column \"value\": ", c.problem)));
    EXPECT_TRUE(source->Read(2).ok());
  }
  MemoryFiles files;
  CsvOptions options;
  options.columns["a"] = {CsvType::kCategorical, {"x", "y"}};
  const auto source = Open(&files, "a\nz\n", options);
  EXPECT_EQ(source->Read(0).status(),
            absl::DataLossError("data: line 2: column \"a\": found \"z\", expected one of the 2 classes"));
}

TEST(CsvSourceTest, LinesAreCountedFarFromTheBeginning) {
  MemoryFiles files;
  std::string content = "a,b\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&content, i, ",\"", i % 3 == 0 ? "\n" : "", "\"\n");
  content += "bad,\n";
  files.Put("data/a.csv", content);
  files.Put("data/b.csv", "a,b\n1,\nbad,\n");
  const auto source = Open(files);
  ASSERT_NE(source, nullptr);
  const std::string expected = ": column \"a\": found \"bad\", expected an integer of 64 bits (i64)";
  EXPECT_EQ(source->Read(10'000).status(), absl::DataLossError(absl::StrCat("data/a.csv: line 13336", expected)));
  EXPECT_EQ(source->Read(10'002).status(), absl::DataLossError(absl::StrCat("data/b.csv: line 3", expected)));
}

TEST(CsvSourceTest, OnlyTheFirstThousandRowsAreGuessedFrom) {
  MemoryFiles files;
  std::string content = "a\n";
  for (int i = 0; i < 1000; ++i) content += "1\n";
  const auto source = Open(&files, content + "x\n");
  EXPECT_EQ(Describe(*source), "a:i64 ");
  EXPECT_FALSE(source->Read(1000).ok());
  EXPECT_EQ(Describe(*Open(&files, "a\n\"\"\n1\n")), "a:i64 ");
  EXPECT_EQ(Describe(*Open(&files, "a\n\"\"\n")), "a:text ");
  EXPECT_EQ(Describe(*Open(&files, "a\n")), "a:text ");
}

TEST(CsvSourceTest, ErrorsOfTheFilesArePassedOn) {
  MemoryFiles files;
  EXPECT_TRUE(absl::IsNotFound(OpenCsv(files, "data", {}).status()));
  files.Put("data", "a\n1\n2\n");
  for (std::int64_t read = 1; read <= 2; ++read) {
    files.FailReads(read, absl::UnavailableError("gone"));
    EXPECT_EQ(OpenCsv(files, "data", {}).status(), absl::UnavailableError("data: gone")) << read;
  }
  const auto source = Open(files);
  files.FailReads(1, absl::UnavailableError("gone"));
  EXPECT_EQ(source->Read(0).status(), absl::UnavailableError("data: gone"));
  EXPECT_TRUE(source->Read(0).ok());
  const auto cut = Open(files);
  files.Cut("data", 4);
  EXPECT_EQ(cut->Read(1).status(), absl::DataLossError("data: ends at byte 4, expected 1 more")) << "of the file";
}

TEST(CsvSourceTest, AFileThatWasReplacedIsNoticed) {
  MemoryFiles files;
  const auto source = Open(&files, "a\n1\n");
  files.Put("data", "a\n2\n", 5);
  EXPECT_EQ(source->Read(0).status(),
            absl::DataLossError("data: found 4 bytes, modified at 5, expected the file of 4 bytes, modified at 1, that "
                                "was there before"));
}

}  // namespace
}  // namespace downpour::data
