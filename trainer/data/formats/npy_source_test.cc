#include "trainer/data/formats/npy_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define ZLIB_CONST  // input pointers are const
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/npy_builder.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Number>
std::vector<Number> NumbersOf(const Value& value) {
  std::vector<Number> numbers(value.bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

absl::StatusOr<std::unique_ptr<SampleSource>> Open(MemoryFiles* files, const std::string& content,
                                                   const NpyOptions& options = {}) {
  files->Put("data", content);
  return OpenNpy(*files, "data", options);
}

TEST(NpySourceTest, ReadsEveryVersionInBothByteOrders) {
  for (const int version : {1, 2, 3}) {
    for (const bool big_endian : {false, true}) {
      MemoryFiles files;
      const auto source = Open(&files, NpyArray(big_endian ? ">f8" : "<f8", "(2, 3)",
                                                Bytes<double>({1, 2, 3, 4, 5, -0.5}, big_endian), version));
      ASSERT_TRUE(source.ok()) << source.status();
      ASSERT_EQ((*source)->size(), 2);
      ASSERT_EQ((*source)->columns().size(), 1U);
      const Column& column = (*source)->columns()[0];
      EXPECT_EQ(column.name, "values");
      EXPECT_EQ(column.type, ElementType::kF32);
      EXPECT_THAT(column.shape, ElementsAre(3));
      const Value value = (*source)->Read(1).value()[0];
      EXPECT_THAT(value.shape, ElementsAre(3));
      EXPECT_THAT(NumbersOf<float>(value), ElementsAre(4, 5, -0.5F));
    }
  }
}

TEST(NpySourceTest, HeadersMayBeWrittenOtherwise) {
  for (const std::string header : {"{'shape':(2,),'fortran_order':True,'descr':'=i2'}",
                                   " { \"descr\" : \"<i2\", \"fortran_order\":False,\n"
                                   "\"shape\":( 2 , ) , }  \n"}) {
    MemoryFiles files;
    const auto source = Open(&files, NpyArray(header, Bytes<std::int16_t>({7, -8})));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE((*source)->columns()[0].shape.empty());
    EXPECT_THAT(NumbersOf<std::int32_t>((*source)->Read(1).value()[0]), ElementsAre(-8));
  }
}

TEST(NpySourceTest, ADirectoryHasAColumnEachFile) {
  MemoryFiles files;
  files.Put("data/x.npy", NpyArray("|u1", "(2, 2)", Bytes<std::uint8_t>({1, 2, 3, 4})));
  files.Put("data/more/y.npy", NpyArray("|b1", "(2,)", Bytes<std::uint8_t>({1, 0})));
  files.Put("data/README", "not this one");
  const auto source = OpenNpy(files, "data", {});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->columns().size(), 2U);
  EXPECT_EQ((*source)->columns()[0].name, "more/y");
  EXPECT_EQ((*source)->columns()[0].type, ElementType::kU8);
  EXPECT_EQ((*source)->columns()[0].classes, 2);
  EXPECT_EQ((*source)->columns()[1].name, "x");
  const Sample sample = (*source)->Read(0).value();
  EXPECT_THAT(NumbersOf<std::uint8_t>(sample[0]), ElementsAre(1));
  EXPECT_THAT(NumbersOf<std::uint8_t>(sample[1]), ElementsAre(1, 2));
  NpyOptions stem;
  stem.column = "";
  EXPECT_EQ(OpenNpy(files, "data/more/y.npy", stem).value()->columns()[0].name, "y");
}

TEST(NpySourceTest, ReadsArchivesStoredAndDeflated) {
  const std::string x = NpyArray("<i4", "(3, 2)", Bytes<std::int32_t>({1, 2, 3, 4, 5, 6}));
  const std::string y = NpyArray("<i8", "(3,)", Bytes<std::int64_t>({7, 8, 9}));
  for (const bool wide : {false, true}) {
    for (const bool deflated : {false, true}) {
      MemoryFiles files;
      const auto source = Open(&files, Zip({{"x.npy", x, deflated}, {"y.npy", y, !deflated}}, wide, "a comment"));
      ASSERT_TRUE(source.ok()) << source.status();
      ASSERT_EQ((*source)->columns().size(), 2U);
      EXPECT_EQ((*source)->columns()[1].name, "y");
      const Sample sample = (*source)->Read(2).value();
      EXPECT_THAT(NumbersOf<std::int32_t>(sample[0]), ElementsAre(5, 6));
      EXPECT_THAT(NumbersOf<std::int64_t>(sample[1]), ElementsAre(9));
    }
  }
}

TEST(NpySourceTest, LargeDeflatedArraysAreInflatedPieceByPiece) {
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> numbers(1'000'000);
  for (std::uint32_t& number : numbers) number = static_cast<std::uint32_t>(random() >> 40);
  MemoryFiles files;
  const auto source = Open(&files, Zip({{"x.npy", NpyArray("<u4", "(1000, 1000)", Bytes(numbers)), true}}));
  ASSERT_TRUE(source.ok()) << source.status();
  const std::vector<std::int64_t> row = NumbersOf<std::int64_t>((*source)->Read(999).value()[0]);
  for (std::size_t i = 0; i < row.size(); ++i) ASSERT_EQ(row[i], numbers[999'000 + i]);
}

TEST(NpySourceTest, WhatIsBrokenIsRefused) {
  const std::string four = Bytes<float>({1, 2, 3, 4});
  const struct {
    std::string content;
    absl::Status status;
  } cases[] = {
      {"", absl::DataLossError("data: found \"\" at the beginning, expected \"\\x93NUMPY\": is no array of NumPy")},
      {"\x93NUMPY\x01", absl::DataLossError("data: found 7 bytes, too few for the header of an array, expected more")},
      {NpyArray("<f4", "(4,)", four, 4),
       absl::UnimplementedError("data: found format version 4.0, expected 1.0, 2.0 or 3.0")},
      {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12),
       absl::DataLossError("data: found a header of 65535 bytes, expected no more than 2")},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       absl::DataLossError("data: found a header of 4294967295 bytes, expected no more than 2")},
      {NpyArray("{'descr': '<f4'}", four),
       absl::DataLossError("data: found the header \"{\\'descr\\': \\'<f4\\'}\", expected {'descr': '<f4', "
                           "'fortran_order': False, 'shape': (3, 4), }")},
      {NpyArray("<c8", "(2,)", four),
       absl::UnimplementedError(
           "data: found elements of type '<c8', expected bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, "
           "f4 or f8, as '<f4'")},
      {NpyArray("|O", "(2,)", four),
       absl::UnimplementedError("data: found elements of type '|O', expected bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, "
                                "f4 or f8, as '<f4'")},
      {NpyArray("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four),
       absl::UnimplementedError("data: found elements of several fields, expected plain numbers: save a file a field")},
      {NpyArray("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", four),
       absl::UnimplementedError("data: found an array of shape [2, 2] in Fortran order, in which a sample does not lie "
                                "in one piece, expected C order: save numpy.ascontiguousarray(array)")},
      {NpyArray("<f4", "(5,)", four),
       absl::DataLossError("data: found 16 bytes of values, expected those of [5] elements '<f4'")},
      {NpyArray("<f4", "(3,)", four),
       absl::DataLossError("data: found 16 bytes of values, expected those of [3] elements '<f4'")},
      {NpyArray("<f4", "(4294967296, 4294967296)", ""),
       absl::DataLossError("data: found 0 bytes of values, expected those of [4294967296, 4294967296] elements '<f4'")},
      {NpyArray("<f4", "()", Bytes<float>({1})),
       absl::DataLossError("data: found a single number, expected an array whose first dimension is the samples")},
      {NpyArray("<f4", "(3, 0)", ""),
       absl::DataLossError("data: found the shape [3, 0], whose samples have no values")},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    EXPECT_EQ(Open(&files, c.content).status(), c.status);
  }
  for (const char* const shape : {"(4)", "4", "(4,", "(-4,)", "(4.0,)", "(99999999999999999999,)", "(,)", "('4',)"}) {
    MemoryFiles files;
    EXPECT_THAT(std::string(Open(&files, NpyArray("<f4", shape, four)).status().message()),
                HasSubstr("found the header"))
        << shape;
  }
}

TEST(NpySourceTest, ColumnsThatDisagreeAreRefused) {
  MemoryFiles files;
  files.Put("data/x.npy", NpyArray("|u1", "(2,)", "ab"));
  files.Put("data/y.npy", NpyArray("|u1", "(3,)", "abc"));
  EXPECT_EQ(OpenNpy(files, "data", {}).status(),
            absl::DataLossError("data/y.npy: found 3 samples, but data/x.npy has 2"));
  files.Put("none/x", "");
  EXPECT_EQ(OpenNpy(files, "none", {}).status(), absl::DataLossError("none: found no array, expected one or more"));
  EXPECT_TRUE(absl::IsNotFound(OpenNpy(files, "nowhere", {}).status()));
}

TEST(NpySourceTest, BrokenArchivesAreRefused) {
  const std::string x = NpyArray("|u1", "(3,)", "abc");
  const std::string zip = Zip({{"x.npy", x, false}});
  const std::string deflated = Zip({{"x.npy", x, true}});
  const std::size_t packed = Deflate(x).size();
  const std::string directory_signature("PK\x01\x02", 4);
  const auto word = [](std::uint32_t number) { return Bytes<std::uint32_t>({number}); };
  const auto half = [](std::uint16_t number) { return Bytes<std::uint16_t>({number}); };
  const std::size_t directory = zip.rfind(directory_signature);
  const std::size_t deflated_directory = deflated.rfind(directory_signature);
  const auto with = [](std::string text, std::size_t at, const std::string& bytes) {
    return text.replace(at, bytes.size(), bytes);
  };
  const std::string large = word(0x7fffffff);
  const struct {
    std::string content;
    std::string message;
  } cases[] = {
      {"PK", "data: broken zip archive: found no end of a directory, expected one at the end of the file"},
      {zip.substr(0, zip.size() - 1),
       "data: broken zip archive: found no end of a directory, expected one at the end of the file"},
      {zip + "x", "data: broken zip archive: found no end of a directory, expected one at the end of the file"},
      {with(zip, zip.size() - 10, word(47)), absl::StrCat("data: broken zip archive: a directory of 47 bytes at byte ",
                                                          directory, ", expected it to end at byte ", zip.size() - 22)},
      {with(zip, zip.size() - 14, half(2) + half(2)),
       "data: broken zip archive: the directory has 1 entries, expected 2"},
      {with(zip, directory, "PK\x01\x03"), "data: broken zip archive: entry 0 of the directory is none, expected one"},
      {with(zip, directory + 28, half(500)),
       "data: broken zip archive: entry 0 ends behind the directory, expected within it"},
      {with(zip, directory + 42, word(1)),
       "data: broken zip archive: what is at byte 1 is not the header of \"x.npy\" that the directory promises"},
      {with(zip, directory + 42, large),
       absl::StrCat("data: broken zip archive: \"x.npy\" begins at byte 2147483647, expected before the directory at "
                    "byte ",
                    directory)},
      {with(with(zip, directory + 20, large), directory + 24, large),
       absl::StrCat("data: broken zip archive: the 2147483647 bytes of \"x.npy\" at byte 35 end behind the directory's "
                    "begin at byte ",
                    directory)},
      {with(zip, directory + 24, word(1)),
       absl::StrCat("data: broken zip archive: \"x.npy\" is stored and has 1 bytes, but ", x.size(), " packed ones")},
      {with(zip, directory + 20, word(0xffffffff)),
       "data: broken zip archive: \"x.npy\" has no sound zip64 field, expected one with its sizes"},
      {with(deflated, deflated_directory + 24, large),
       absl::StrCat("data: broken zip archive: \"x.npy\" has 2147483647 bytes in ", packed,
                    " packed ones, expected no more than deflate can pack")},
      {with(deflated, deflated_directory + 24, word(static_cast<std::uint32_t>(x.size() - 1))),
       absl::StrCat("data: broken zip archive: \"x.npy\" inflates to more than the ", x.size() - 1,
                    " bytes that the directory promises")},
      {with(deflated, deflated_directory + 24, word(static_cast<std::uint32_t>(x.size() + 1))),
       absl::StrCat("data: broken zip archive: \"x.npy\" inflates from ", packed, " bytes to ", x.size(),
                    ", expected from ", packed, " to ", x.size() + 1)},
      {with(deflated, deflated_directory + 20, word(static_cast<std::uint32_t>(packed - 1))),
       "data: broken zip archive: \"x.npy\" cannot be inflated, expected sound data: it is cut off"},
      {with(deflated, 35, "\xff"),
       "data: broken zip archive: \"x.npy\" cannot be inflated, expected sound data: invalid block type"},
      {with(deflated, deflated_directory + 16, word(0)),
       absl::StrFormat("data: broken zip archive: \"x.npy\" has the checksum 0x%08x, expected 0x00000000",
                       crc32(0, reinterpret_cast<const Bytef*>(x.data()), static_cast<uInt>(x.size())))},
      {Zip({{"x.txt", x, false}}), "data: found \"x.txt\", expected arrays alone, whose names end in .npy"},
      {Zip({{"x.npy", x, false}, {"x.npy", x, false}}),
       "data: the name \"x\" is there twice, expected one array of it"},
      {Zip({}), "data: found no array, expected one or more"},
      {Zip({{"x.npy", "abc", false}}),
       "data: x.npy: found \"abc\" at the beginning, expected \"\\x93NUMPY\": is no array of NumPy"},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    EXPECT_EQ(Open(&files, c.content).status(), absl::DataLossError(c.message));
  }
  MemoryFiles files;
  EXPECT_EQ(Open(&files, with(zip, directory + 10, half(12))).status(),
            absl::UnimplementedError("data: \"x.npy\": found the method 12, expected 0 (stored) or 8 (deflated)"));
  EXPECT_EQ(Open(&files, with(zip, directory + 8, half(1))).status(),
            absl::UnimplementedError("data: \"x.npy\" is encrypted, expected one that is not"));
  EXPECT_EQ(Open(&files, with(zip, zip.size() - 18, half(1))).status(),
            absl::UnimplementedError("data: found an archive of several volumes, expected one"));
}

TEST(NpySourceTest, EntriesThatShareTheirDataAreRefused) {
  const std::string x = NpyArray("|u1", "(3,)", "abc");
  std::string zip = Zip({{"x.npy", x, false}, {"x.npy", x, false}});
  const std::size_t second = zip.rfind(std::string("PK\x01\x02", 4));
  zip.replace(second + 42, 4, std::string(4, '\0'));
  MemoryFiles files;
  EXPECT_EQ(
      Open(&files, zip).status(),
      absl::DataLossError("data: broken zip archive: the entries at bytes 0 and 0 overlap, expected each for itself"));
}

TEST(NpySourceTest, BrokenLargeArchivesAreRefused) {
  const std::string zip = Zip({{"x.npy", NpyArray("|u1", "(3,)", "abc"), false}}, /*wide=*/true);
  const std::size_t end = zip.size() - 22 - 20 - 56;
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{4}, std::size_t{32}, std::size_t{40}, std::size_t{48}, std::size_t{56 + 8}}) {
    std::string broken = zip;
    broken[end + at] = static_cast<char>(broken[end + at] + 1);
    MemoryFiles files;
    EXPECT_TRUE(absl::IsDataLoss(Open(&files, broken).status()) || at == 32) << at;
    EXPECT_FALSE(Open(&files, broken).ok()) << at;
  }
}

// Nothing is allocated for what would be too much.
TEST(NpySourceTest, BombsAreRefused) {
  const std::string zeros = NpyArray("|u1", "(1000000,)", std::string(1'000'000, '\0'));
  MemoryFiles files;
  NpyOptions options;
  options.most_inflated_bytes = 2 * zeros.size() - 1;
  EXPECT_EQ(Open(&files, Zip({{"x.npy", zeros, true}, {"y.npy", zeros, true}}), options).status(),
            absl::ResourceExhaustedError(
                absl::StrCat("data: with \"y.npy\", the deflated arrays have more than ", 2 * zeros.size() - 1,
                             " bytes, which is as much as may be held in memory: save them with numpy.savez instead of "
                             "numpy.savez_compressed")));
  options.most_inflated_bytes = 2 * zeros.size();
  EXPECT_TRUE(Open(&files, Zip({{"x.npy", zeros, true}, {"y.npy", zeros, true}}), options).ok());
}

TEST(NpySourceTest, ValuesOutOfRangeAreErrorsOfTheSample) {
  MemoryFiles files;
  const auto source = Open(&files, NpyArray("<f8", "(2, 2)", Bytes<double>({1, 1e300, 1, 2})));
  EXPECT_EQ((*source)->Read(0).status(),
            absl::DataLossError("data: sample 0: element 1: found 1e+300, expected what a 32 bit float can hold"));
  EXPECT_TRUE((*source)->Read(1).ok());
}

TEST(NpySourceTest, ErrorsOfTheFilesArePassedOn) {
  const std::string zip = Zip({{"x.npy", NpyArray("|u1", "(3,)", "abc"), true}});
  for (std::int64_t read = 1;; ++read) {
    MemoryFiles files;
    files.FailReads(read, absl::UnavailableError("gone"));
    const auto source = Open(&files, zip);
    if (source.ok()) {
      EXPECT_EQ(read, 6) << "begin, end, directory, header, data: each was made to fail";
      break;
    }
    EXPECT_EQ(source.status(), absl::UnavailableError("data: gone"));
  }
  MemoryFiles files;
  const auto source = Open(&files, NpyArray("|u1", "(3,)", "abc"));
  files.FailReads(1, absl::UnavailableError("gone"));
  EXPECT_EQ((*source)->Read(0).status(), absl::UnavailableError("data: gone"));
  EXPECT_TRUE((*source)->Read(0).ok());
}

}  // namespace
}  // namespace downpour::data
