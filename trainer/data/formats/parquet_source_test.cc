#include "trainer/data/formats/parquet_source.h"

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/memory.h>
#include <arrow/json/from_string.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>

#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/files/testing/memory_files.h"

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct TestColumn {
  std::string name;
  std::shared_ptr<arrow::DataType> type;
  std::string json;  // an array of the values
};

std::shared_ptr<arrow::Array> ArrayOf(const std::shared_ptr<arrow::DataType>& type, const std::string& json) {
  auto array = arrow::json::ArrayFromJSONString(type, json);
  EXPECT_TRUE(array.ok()) << array.status().ToString();
  return *array;
}

// A file by Arrow's own writer.
std::string WriteTable(const arrow::Table& table, std::int64_t rows_in_group = 100) {
  auto sink = *arrow::io::BufferOutputStream::Create();
  const auto properties =
      parquet::WriterProperties::Builder().enable_page_checksum()->compression(arrow::Compression::SNAPPY)->build();
  // With Arrow's schema: Parquet itself has no lists of a fixed size.
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  const arrow::Status status = parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink, rows_in_group,
                                                          properties, arrow_properties);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return (*sink->Finish())->ToString();
}

std::string WriteFile(const std::vector<TestColumn>& columns, std::int64_t rows_in_group = 100) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const TestColumn& column : columns) {
    fields.push_back(arrow::field(column.name, column.type));
    arrays.push_back(ArrayOf(column.type, column.json));
  }
  return WriteTable(*arrow::Table::Make(arrow::schema(fields), arrays), rows_in_group);
}

// Rows 0 to rows - 1: "number" is the row, "text" its name.
std::string Numbered(std::int64_t rows, std::int64_t rows_in_group, std::int64_t first = 0) {
  arrow::Int64Builder numbers;
  arrow::StringBuilder texts;
  for (std::int64_t row = first; row < first + rows; ++row) {
    EXPECT_TRUE(numbers.Append(row).ok());
    EXPECT_TRUE(texts.Append(absl::StrCat("row ", row)).ok());
  }
  const auto schema = arrow::schema({arrow::field("number", arrow::int64()), arrow::field("text", arrow::utf8())});
  return WriteTable(*arrow::Table::Make(schema, {*numbers.Finish(), *texts.Finish()}), rows_in_group);
}

template <typename T>
std::vector<T> Values(const Value& value) {
  std::vector<T> values(value.bytes.size() / sizeof(T));
  std::memcpy(values.data(), value.bytes.data(), value.bytes.size());
  return values;
}

std::string Text(const Value& value) { return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()}; }

class ParquetSourceTest : public ::testing::Test {
 protected:
  std::unique_ptr<SampleSource> Open(const std::string& path = "a.parquet") {
    auto source = OpenParquet(files_, path, options_);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  // What it says of a file that it refuses.
  std::string Refusal(const std::string& content, absl::StatusCode code) {
    files_.Put("a.parquet", content);
    const absl::Status status = OpenParquet(files_, "a.parquet", options_).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  std::string ReadError(const SampleSource& source, std::int64_t index) {
    const absl::Status status = source.Read(index).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }

  MemoryFiles files_;
  ParquetOptions options_;
};

TEST_F(ParquetSourceTest, ReadsEveryTypeThatItPromises) {
  files_.Put("a.parquet",
             WriteFile({{"bool", arrow::boolean(), "[true, false]"},
                        {"i8", arrow::int8(), "[-128, 127]"},
                        {"u8", arrow::uint8(), "[0, 255]"},
                        {"i16", arrow::int16(), "[-32768, 5]"},
                        {"u16", arrow::uint16(), "[65535, 5]"},
                        {"i32", arrow::int32(), "[-2147483648, 5]"},
                        {"u32", arrow::uint32(), "[4294967295, 5]"},
                        {"i64", arrow::int64(), "[-9223372036854775807, 5]"},
                        {"u64", arrow::uint64(), "[9223372036854775807, 5]"},
                        {"f32", arrow::float32(), "[1.5, -0.25]"},
                        {"f64", arrow::float64(), "[0.1, 1e300]"},
                        {"text", arrow::utf8(), R"(["Grüße", ""])"},
                        {"words", arrow::dictionary(arrow::int32(), arrow::utf8()), R"(["yes", "no"])"},
                        {"vector", arrow::fixed_size_list(arrow::float32(), 3), "[[1, 2, 3], [4, 5, 6]]"},
                        {"matrix", arrow::fixed_size_list(arrow::fixed_size_list(arrow::uint8(), 2), 2),
                         "[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]"},
                        {"flags", arrow::fixed_size_list(arrow::boolean(), 2), "[[true, false], [false, true]]"}}));
  const auto source = Open();
  ASSERT_EQ(source->size(), 2);
  std::vector<std::string> columns;
  for (const Column& column : source->columns()) {
    columns.push_back(
        absl::StrCat(column.name, ": ", column.text ? "text " : "", Name(column.type), " ", ShapeText(column.shape)));
  }
  EXPECT_THAT(columns, ElementsAre("bool: u8 []", "i8: i32 []", "u8: u8 []", "i16: i32 []", "u16: i32 []",
                                   "i32: i32 []", "u32: i64 []", "i64: i64 []", "u64: i64 []", "f32: fp32 []",
                                   "f64: fp32 []", "text: text u8 [*]", "words: text u8 [*]", "vector: fp32 [3]",
                                   "matrix: u8 [2, 2]", "flags: u8 [2]"));
  const auto first = source->Read(0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Values<std::uint8_t>((*first)[0]), ElementsAre(1));
  EXPECT_THAT(Values<std::int32_t>((*first)[1]), ElementsAre(-128));
  EXPECT_THAT(Values<std::uint8_t>((*first)[2]), ElementsAre(0));
  EXPECT_THAT(Values<std::int32_t>((*first)[3]), ElementsAre(-32768));
  EXPECT_THAT(Values<std::int32_t>((*first)[4]), ElementsAre(65535));
  EXPECT_THAT(Values<std::int32_t>((*first)[5]), ElementsAre(std::numeric_limits<std::int32_t>::min()));
  EXPECT_THAT(Values<std::int64_t>((*first)[6]), ElementsAre(4294967295));
  EXPECT_THAT(Values<std::int64_t>((*first)[7]), ElementsAre(-9223372036854775807));
  EXPECT_THAT(Values<std::int64_t>((*first)[8]), ElementsAre(9223372036854775807));
  EXPECT_THAT(Values<float>((*first)[9]), ElementsAre(1.5F));
  EXPECT_THAT(Values<float>((*first)[10]), ElementsAre(0.1F));
  EXPECT_EQ(Text((*first)[11]), "Grüße");
  EXPECT_THAT((*first)[11].shape, ElementsAre(7));
  EXPECT_EQ(Text((*first)[12]), "yes");
  EXPECT_THAT(Values<float>((*first)[13]), ElementsAre(1, 2, 3));
  EXPECT_THAT((*first)[14].shape, ElementsAre(2, 2));
  EXPECT_THAT(Values<std::uint8_t>((*first)[14]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<std::uint8_t>((*first)[15]), ElementsAre(1, 0));
  EXPECT_EQ(ReadError(*source, 1), "a.parquet: row 1: column 'f64' is 1e+300, expected at most 3.40282e+38");
}

TEST_F(ParquetSourceTest, ReadsHalfPrecision) {
  arrow::HalfFloatBuilder builder;
  ASSERT_TRUE(builder.Append(std::uint16_t{0x3e00}).ok());  // 1.5
  const auto schema = arrow::schema({arrow::field("x", arrow::float16())});
  files_.Put("a.parquet", WriteTable(*arrow::Table::Make(schema, {*builder.Finish()})));
  const auto sample = Open()->Read(0);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(Values<float>((*sample)[0]), ElementsAre(1.5F));
}

TEST_F(ParquetSourceTest, EveryRowOfADirectoryIsWhereItBelongs) {
  files_.Put("data/b.parquet", Numbered(25, 7, 10));
  files_.Put("data/a.parquet", Numbered(10, 4));
  files_.Put("data/deep/c.parquet", Numbered(1, 100, 35));
  files_.Put("data/_SUCCESS", "");
  files_.Put("data/_common.parquet", "not one");
  files_.Put("data/README.txt", "text");
  const auto source = Open("data");
  ASSERT_EQ(source->size(), 36);
  for (std::int64_t step : {1, 5, 11}) {
    for (std::int64_t i = 0; i < 36; ++i) {
      const std::int64_t row = i * step % 36;
      const auto sample = source->Read(row);
      ASSERT_TRUE(sample.ok()) << sample.status();
      ASSERT_THAT(Values<std::int64_t>((*sample)[0]), ElementsAre(row));
      ASSERT_EQ(Text((*sample)[1]), absl::StrCat("row ", row));
    }
  }
}

TEST_F(ParquetSourceTest, AFileMayHaveAnyName) {
  files_.Put("data/part-0", Numbered(3, 100));
  EXPECT_EQ(Open("data/part-0")->size(), 3);
  const absl::Status none = OpenParquet(files_, "data", options_).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_EQ(std::string(none.message()), "data: found no file, expected one whose name ends with .parquet");
}

TEST_F(ParquetSourceTest, ColumnsMayBeChosen) {
  files_.Put("a.parquet", WriteFile({{"skipped", arrow::list(arrow::int32()), "[[1], [2, 3]]"},
                                     {"x", arrow::int32(), "[1, 2]"},
                                     {"point", arrow::struct_({arrow::field("x", arrow::int32())}), "[[1], [2]]"},
                                     {"y", arrow::float32(), "[0.5, 1.5]"}}));
  options_.columns = {"y", "x"};
  const auto source = Open();
  ASSERT_THAT(source->columns(), SizeIs(2));
  EXPECT_EQ(source->columns()[0].name, "y");
  const auto sample = source->Read(1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(Values<float>((*sample)[0]), ElementsAre(1.5F));
  EXPECT_THAT(Values<std::int32_t>((*sample)[1]), ElementsAre(2));

  options_.columns = {"z"};
  EXPECT_EQ(Refusal(Numbered(1, 1), absl::StatusCode::kInvalidArgument),
            "a.parquet: no column 'z', expected one of number, text");
}

TEST_F(ParquetSourceTest, BytesAreReadByOption) {
  const std::string file = WriteFile({{"image", arrow::binary(), R"(["abc", ""])"}});
  EXPECT_EQ(
      Refusal(file, absl::StatusCode::kInvalidArgument),
      "a.parquet: column 'image' is binary, expected bool, an integer, a float, a string, or a fixed_size_list of "
      "bools, integers or floats; bytes are read where images are expected");
  options_.binary = true;
  const auto source = Open();
  EXPECT_FALSE(source->columns()[0].text);
  EXPECT_THAT(source->columns()[0].shape, ElementsAre(kAnyExtent));
  EXPECT_EQ(Text((*source->Read(0))[0]), "abc");
  EXPECT_THAT((*source->Read(1))[0].shape, ElementsAre(0));
}

TEST_F(ParquetSourceTest, OtherTypesAreRefusedWithFileColumnAndType) {
  const std::vector<std::pair<TestColumn, std::string>> cases = {
      {{"tokens", arrow::list(arrow::int32()), "[[1], [2, 3]]"}, "column 'tokens' is list<"},
      {{"point", arrow::struct_({arrow::field("x", arrow::int32())}), "[[1], [2]]"}, "column 'point' is struct<"},
      {{"map", arrow::map(arrow::utf8(), arrow::int32()), R"([[["a", 1]], []])"}, "column 'map' is map<"},
      {{"day", arrow::date32(), "[1, 2]"}, "column 'day' is date32"},
      {{"time", arrow::timestamp(arrow::TimeUnit::MICRO), "[1, 2]"}, "column 'time' is timestamp[us]"},
      {{"price", arrow::decimal128(10, 2), R"(["1.00", "2.00"])"}, "column 'price' is decimal128(10, 2)"},
      {{"names", arrow::fixed_size_list(arrow::utf8(), 1), R"([["a"], ["b"]])"}, "column 'names' is fixed_size_list<"}};
  for (const auto& [column, problem] : cases) {
    EXPECT_THAT(Refusal(WriteFile({{"x", arrow::int32(), "[1, 2]"}, column}), absl::StatusCode::kInvalidArgument),
                AllOf(HasSubstr(absl::StrCat("a.parquet: ", problem)),
                      HasSubstr("expected bool, an integer, a float, a string, or a fixed_size_list of")));
  }
}

TEST_F(ParquetSourceTest, ANullIsAnErrorOfItsSample) {
  files_.Put("a.parquet",
             WriteFile({{"x", arrow::int32(), "[1, 2, null, 4]"},
                        {"text", arrow::utf8(), R"(["a", null, "c", "d"])"},
                        {"list", arrow::fixed_size_list(arrow::int32(), 2), "[[1, 2], [1, 2], [1, 2], [1, null]]"}},
                       2));
  const auto source = Open();
  EXPECT_TRUE(source->Read(0).ok());
  EXPECT_EQ(ReadError(*source, 1), "a.parquet: row 1: column 'text' is null, expected a value");
  EXPECT_EQ(ReadError(*source, 2), "a.parquet: row 2: column 'x' is null, expected a value");
  EXPECT_EQ(ReadError(*source, 3), "a.parquet: row 3: column 'list' is null, expected a value");
}

TEST_F(ParquetSourceTest, ANullInPlaceOfAListIsNeverAValue) {
  files_.Put("a.parquet",
             WriteFile({{"list", arrow::fixed_size_list(arrow::int32(), 2), "[[1, 2], [1, 2], [1, 2], null]"}}, 2));
  const auto source = Open();
  EXPECT_TRUE(source->Read(1).ok());
  EXPECT_THAT(ReadError(*source, 3), HasSubstr("a.parquet: row"));
}

TEST_F(ParquetSourceTest, ANumberBeyondItsRangeIsAnErrorOfItsSample) {
  files_.Put("a.parquet", WriteFile({{"x", arrow::uint64(), "[1, 9223372036854775808]"}}));
  const auto source = Open();
  EXPECT_TRUE(source->Read(0).ok());
  EXPECT_EQ(ReadError(*source, 1),
            "a.parquet: row 1: column 'x' is 9223372036854775808, expected at most 9223372036854775807");
}

TEST_F(ParquetSourceTest, TextThatIsNotUtf8IsAnErrorOfItsSample) {
  arrow::StringBuilder builder;
  ASSERT_TRUE(builder.Append("fine").ok());
  ASSERT_TRUE(builder.Append("\xff\xfe").ok());
  const auto schema = arrow::schema({arrow::field("text", arrow::utf8())});
  files_.Put("a.parquet", WriteTable(*arrow::Table::Make(schema, {*builder.Finish()})));
  const auto source = Open();
  EXPECT_TRUE(source->Read(0).ok());
  EXPECT_EQ(ReadError(*source, 1), "a.parquet: row 1: column 'text' has bytes that are not UTF-8, expected text");
}

TEST_F(ParquetSourceTest, WhatIsNoParquetIsRefused) {
  EXPECT_THAT(Refusal("", absl::StatusCode::kDataLoss), HasSubstr("a.parquet: is no Parquet file, expected one: "));
  EXPECT_THAT(Refusal("number,text\n1,one\n2,two\n", absl::StatusCode::kDataLoss),
              HasSubstr("a.parquet: is no Parquet file, expected one: "));
  const std::string whole = Numbered(10, 4);
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 1), absl::StatusCode::kDataLoss),
              HasSubstr("a.parquet: is no Parquet file, expected one: "));
  std::string footer = whole;
  footer[footer.size() - 7] = '\x7f';  // its length
  EXPECT_THAT(Refusal(footer, absl::StatusCode::kDataLoss), HasSubstr("a.parquet: is no Parquet file, expected one: "));
  footer = whole;
  footer[footer.size() - 60] = static_cast<char>(~footer[footer.size() - 60]);
  files_.Put("a.parquet", footer);
  const auto source = OpenParquet(files_, "a.parquet", options_);  // it need not be seen
  EXPECT_TRUE(!source.ok() || (*source)->size() > 0);
}

TEST_F(ParquetSourceTest, ADamagedPageIsAnErrorOfItsRows) {
  std::string file = Numbered(40, 10);
  // The first page's data, behind the magic and the page's header.
  file[60] = static_cast<char>(file[60] ^ 0x10);
  files_.Put("a.parquet", file);
  const auto source = Open();
  EXPECT_THAT(ReadError(*source, 3), HasSubstr("a.parquet: rows 0 to 9 cannot be read, expected sound ones: "));
  const auto sample = source->Read(10);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(Values<std::int64_t>((*sample)[0]), ElementsAre(10));
}

TEST_F(ParquetSourceTest, AFileThatWasCutIsAnErrorOfItsRows) {
  files_.Put("a.parquet", Numbered(40, 10));
  const auto source = Open();
  EXPECT_TRUE(source->Read(0).ok());
  files_.Cut("a.parquet", 200);
  EXPECT_TRUE(source->Read(1).ok()) << "it is in memory";
  EXPECT_THAT(ReadError(*source, 39), HasSubstr("a.parquet: ends at byte 200"));
}

TEST_F(ParquetSourceTest, AFileThatWasReplacedIsSaid) {
  files_.Put("a.parquet", Numbered(40, 10));
  const auto source = Open();
  files_.Put("a.parquet", Numbered(40, 10), 2);
  EXPECT_EQ(ReadError(*source, 0), "a.parquet: is another file than it was when it was opened first");
}

TEST_F(ParquetSourceTest, WhatTheStoreSaysIsPassedOn) {
  files_.Put("a.parquet", Numbered(40, 10));
  const auto source = Open();
  for (std::int64_t read = 1; read <= 2; ++read) {
    files_.FailReads(read, absl::UnavailableError("503 SlowDown"), 1000);
    const absl::Status status = source->Read(0).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(std::string(status.message()), "a.parquet: 503 SlowDown");
    files_.FailReads(1, absl::OkStatus(), 0);
  }
  EXPECT_TRUE(source->Read(0).ok()) << "the next attempt is a new one";
  files_.FailReads(1, absl::PermissionDeniedError("403"), 1000);
  EXPECT_EQ(OpenParquet(files_, "a.parquet", options_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ParquetSourceTest, FilesOfADirectoryHaveTheSameColumns) {
  files_.Put("data/a.parquet", Numbered(3, 3));
  files_.Put("data/b.parquet", WriteFile({{"number", arrow::int64(), "[1]"}, {"more", arrow::utf8(), R"(["x"])"}}));
  absl::Status status = OpenParquet(files_, "data", options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "data/b.parquet: columns 'number', 'more', expected 'number', 'text' as in data/a.parquet");
  files_.Put("data/b.parquet", WriteFile({{"number", arrow::float32(), "[1]"}, {"text", arrow::utf8(), R"(["x"])"}}));
  status = OpenParquet(files_, "data", options_).status();
  EXPECT_EQ(std::string(status.message()),
            "data/b.parquet: column 'number' is fp32 [], expected i64 [] as in data/a.parquet");
}

TEST_F(ParquetSourceTest, ColumnsOfOneNameAreRefused) {
  EXPECT_EQ(Refusal(WriteFile({{"x", arrow::int32(), "[1]"}, {"x", arrow::int64(), "[1]"}}),
                    absl::StatusCode::kInvalidArgument),
            "a.parquet: 2 columns 'x', expected one");
}

TEST_F(ParquetSourceTest, NoRowsAreRefused) {
  EXPECT_EQ(Refusal(WriteFile({{"x", arrow::int32(), "[]"}}), absl::StatusCode::kDataLoss),
            "a.parquet: found no rows, expected one or more");
}

TEST_F(ParquetSourceTest, ARowGroupThatIsTooLargeIsRefused) {
  options_.memory_bytes = 1000;
  EXPECT_THAT(
      Refusal(Numbered(1000, 1000), absl::StatusCode::kInvalidArgument),
      AllOf(HasSubstr("a.parquet: row group 0 has "), HasSubstr(" bytes, expected at most 1000: write the file")));
}

TEST_F(ParquetSourceTest, RowGroupsAreKeptWithinTheBound) {
  files_.Put("a.parquet", Numbered(400, 100));
  Open();
  const auto count = [&](const SampleSource& source, std::int64_t row) {
    const std::int64_t before = files_.reads();
    EXPECT_TRUE(source.Read(row).ok());
    return files_.reads() - before;
  };
  const auto all = Open();
  for (const std::int64_t row : {0, 100, 200, 300}) EXPECT_GT(count(*all, row), 0);
  for (const std::int64_t row : {399, 250, 150, 50}) EXPECT_EQ(count(*all, row), 0);
  options_.memory_bytes = 6000;  // two of them
  const auto some = Open();
  for (const std::int64_t row : {0, 100, 200, 300}) EXPECT_GT(count(*some, row), 0);
  EXPECT_EQ(count(*some, 399), 0);
  EXPECT_GT(count(*some, 0), 0);
}

TEST_F(ParquetSourceTest, ThreadsShareIt) {
  files_.Put("a.parquet", Numbered(400, 50));
  options_.memory_bytes = 6000;
  const auto source = Open();
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::uint32_t state = thread;
      for (int i = 0; i < 200; ++i) {
        state = state * 1664525U + 1013904223U;
        const std::int64_t row = (state >> 8) % 400;
        const auto sample = source->Read(row);
        ASSERT_TRUE(sample.ok()) << sample.status();
        ASSERT_THAT(Values<std::int64_t>((*sample)[0]), ElementsAre(row));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Flips and cuts: nothing may crash, and what is read has the bytes that its shape promises.
TEST_F(ParquetSourceTest, DamageIsNeverMoreThanAnError) {
  const std::string whole =
      WriteFile({{"x", arrow::int32(), "[1, 2, 3]"},
                 {"text", arrow::utf8(), R"(["a", "bc", "def"])"},
                 {"list", arrow::fixed_size_list(arrow::float32(), 2), "[[1, 2], [3, 4], [5, 6]]"}},
                2);
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string file = whole;
    file[place] = static_cast<char>(file[place] ^ (1 << place % 8));
    if (place % 3 == 0) file = file.substr(0, place);
    files_.Put("a.parquet", file);
    const auto source = OpenParquet(files_, "a.parquet", options_);
    if (!source.ok()) continue;
    for (std::int64_t row = 0; row < std::min<std::int64_t>((*source)->size(), 4); ++row) {
      const auto sample = (*source)->Read(row);
      if (!sample.ok()) continue;
      for (std::size_t i = 0; i < sample->size(); ++i) {
        std::size_t bytes = BytesOf((*source)->columns()[i].type);
        for (const std::int64_t extent : (*sample)[i].shape) bytes *= static_cast<std::size_t>(extent);
        ASSERT_EQ((*sample)[i].bytes.size(), bytes) << place;
      }
    }
  }
}

}  // namespace
}  // namespace downpour::data
