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

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With the text of the header as it is.
std::string Array(const std::string& header, const std::string& values, int version = 1) {
  Encoder encoder;
  for (const char letter : std::string("\x93NUMPY")) encoder.Put<char>(letter);
  encoder.Put<std::uint8_t>(static_cast<std::uint8_t>(version));
  encoder.Put<std::uint8_t>(0);
  if (version == 1) {
    encoder.Put<std::uint16_t>(static_cast<std::uint16_t>(header.size()));
  } else {
    encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(header.size()));
  }
  return encoder.bytes() + header + values;
}

// As NumPy writes it.
std::string Array(const std::string& descr, const std::string& shape, const std::string& values, int version = 1) {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  header.resize((header.size() + 64) / 64 * 64, ' ');
  header.back() = '\n';
  return Array(header, values, version);
}

template <typename Number>
std::string Bytes(const std::vector<Number>& numbers, bool big_endian = false) {
  std::string bytes;
  for (const Number number : numbers) {
    char of_number[sizeof(Number)];
    std::memcpy(of_number, &number, sizeof(Number));
    if (big_endian) std::reverse(of_number, of_number + sizeof(Number));
    bytes.append(of_number, sizeof(Number));
  }
  return bytes;
}

template <typename Number>
std::vector<Number> NumbersOf(const Value& value) {
  std::vector<Number> numbers(value.bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

struct Entry {
  std::string name;
  std::string content;
  bool deflated = false;
};

std::string Deflate(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// `wide`: all that can be is in zip64 fields, as np.savez writes local headers.
std::string Zip(const std::vector<Entry>& entries, bool wide = false, const std::string& comment = "") {
  std::string archive;
  std::string directory;
  for (const Entry& entry : entries) {
    const std::string packed = entry.deflated ? Deflate(entry.content) : entry.content;
    const auto checksum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()), static_cast<uInt>(entry.content.size())));
    const std::uint64_t begin = archive.size();
    const auto narrow = [wide](std::uint64_t number) { return wide ? 0xffffffff : static_cast<std::uint32_t>(number); };
    for (const bool local : {true, false}) {
      Encoder extra;
      if (wide) {
        extra.Put<std::uint16_t>(1);
        extra.Put<std::uint16_t>(local ? 16 : 24);
        extra.Put<std::uint64_t>(entry.content.size());
        extra.Put<std::uint64_t>(packed.size());
        if (!local) extra.Put<std::uint64_t>(begin);
      }
      Encoder header;
      header.Put<std::uint32_t>(local ? 0x04034b50 : 0x02014b50);
      if (!local) header.Put<std::uint16_t>(45);
      header.Put<std::uint16_t>(45);
      header.Put<std::uint16_t>(0);
      header.Put<std::uint16_t>(entry.deflated ? 8 : 0);
      header.Put<std::uint32_t>(0);
      header.Put<std::uint32_t>(checksum);
      header.Put<std::uint32_t>(narrow(packed.size()));
      header.Put<std::uint32_t>(narrow(entry.content.size()));
      header.Put<std::uint16_t>(static_cast<std::uint16_t>(entry.name.size()));
      header.Put<std::uint16_t>(static_cast<std::uint16_t>(extra.bytes().size()));
      if (!local) {
        header.Put<std::uint64_t>(0);  // comment, volume, two kinds of attributes
        header.Put<std::uint16_t>(0);
        header.Put<std::uint32_t>(narrow(begin));
      }
      absl::StrAppend(local ? &archive : &directory, header.bytes(), entry.name, extra.bytes(), local ? packed : "");
    }
  }
  Encoder end;
  if (wide) {
    end.Put<std::uint32_t>(0x06064b50);
    end.Put<std::uint64_t>(44);
    end.Put<std::uint32_t>(45);
    end.Put<std::uint64_t>(0);
    end.Put<std::uint64_t>(entries.size());
    end.Put<std::uint64_t>(entries.size());
    end.Put<std::uint64_t>(directory.size());
    end.Put<std::uint64_t>(archive.size());
    end.Put<std::uint32_t>(0x07064b50);
    end.Put<std::uint32_t>(0);
    end.Put<std::uint64_t>(archive.size() + directory.size());
    end.Put<std::uint32_t>(1);
  }
  end.Put<std::uint32_t>(0x06054b50);
  end.Put<std::uint32_t>(0);
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(wide ? 0xffff : entries.size()));
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(wide ? 0xffff : entries.size()));
  end.Put<std::uint32_t>(wide ? 0xffffffff : static_cast<std::uint32_t>(directory.size()));
  end.Put<std::uint32_t>(wide ? 0xffffffff : static_cast<std::uint32_t>(archive.size()));
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(comment.size()));
  return archive + directory + end.bytes() + comment;
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
      const auto source = Open(&files, Array(big_endian ? ">f8" : "<f8", "(2, 3)",
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
    const auto source = Open(&files, Array(header, Bytes<std::int16_t>({7, -8})));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE((*source)->columns()[0].shape.empty());
    EXPECT_THAT(NumbersOf<std::int32_t>((*source)->Read(1).value()[0]), ElementsAre(-8));
  }
}

TEST(NpySourceTest, ADirectoryHasAColumnEachFile) {
  MemoryFiles files;
  files.Put("data/x.npy", Array("|u1", "(2, 2)", Bytes<std::uint8_t>({1, 2, 3, 4})));
  files.Put("data/more/y.npy", Array("|b1", "(2,)", Bytes<std::uint8_t>({1, 0})));
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
  const std::string x = Array("<i4", "(3, 2)", Bytes<std::int32_t>({1, 2, 3, 4, 5, 6}));
  const std::string y = Array("<i8", "(3,)", Bytes<std::int64_t>({7, 8, 9}));
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
  const auto source = Open(&files, Zip({{"x.npy", Array("<u4", "(1000, 1000)", Bytes(numbers)), true}}));
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
      {"\x93NUMPY\x01", absl::DataLossError("data: found 7 bytes, too few for the header of an array")},
      {Array("<f4", "(4,)", four, 4),
       absl::UnimplementedError("data: found format version 4.0, expected 1.0, 2.0 or 3.0")},
      {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12),
       absl::DataLossError("data: found a header of 65535 bytes, expected no more than 2")},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       absl::DataLossError("data: found a header of 4294967295 bytes, expected no more than 2")},
      {Array("{'descr': '<f4'}", four),
       absl::DataLossError("data: found the header \"{\\'descr\\': \\'<f4\\'}\", expected {'descr': '<f4', "
                           "'fortran_order': False, 'shape': (3, 4), }")},
      {Array("<c8", "(2,)", four),
       absl::UnimplementedError(
           "data: found elements of type '<c8', expected bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, "
           "f4 or f8, as '<f4'")},
      {Array("|O", "(2,)", four),
       absl::UnimplementedError("data: found elements of type '|O', expected bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, "
                                "f4 or f8, as '<f4'")},
      {Array("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four),
       absl::UnimplementedError("data: found elements of several fields, expected plain numbers: save a file a field")},
      {Array("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", four),
       absl::UnimplementedError("data: found an array of shape [2, 2] in Fortran order, in which a sample does not lie "
                                "in one piece, expected C order: save numpy.ascontiguousarray(array)")},
      {Array("<f4", "(5,)", four),
       absl::DataLossError("data: found 16 bytes of values, expected those of [5] elements '<f4'")},
      {Array("<f4", "(3,)", four),
       absl::DataLossError("data: found 16 bytes of values, expected those of [3] elements '<f4'")},
      {Array("<f4", "(4294967296, 4294967296)", ""),
       absl::DataLossError("data: found 0 bytes of values, expected those of [4294967296, 4294967296] elements '<f4'")},
      {Array("<f4", "()", Bytes<float>({1})),
       absl::DataLossError("data: found a single number, expected an array whose first dimension is the samples")},
      {Array("<f4", "(3, 0)", ""), absl::DataLossError("data: found the shape [3, 0], whose samples have no values")},
  };
  for (const auto& c : cases) {
    MemoryFiles files;
    EXPECT_EQ(Open(&files, c.content).status(), c.status);
  }
  for (const char* const shape : {"(4)", "4", "(4,", "(-4,)", "(4.0,)", "(99999999999999999999,)", "(,)", "('4',)"}) {
    MemoryFiles files;
    EXPECT_THAT(std::string(Open(&files, Array("<f4", shape, four)).status().message()), HasSubstr("found the header"))
        << shape;
  }
}

TEST(NpySourceTest, ColumnsThatDisagreeAreRefused) {
  MemoryFiles files;
  files.Put("data/x.npy", Array("|u1", "(2,)", "ab"));
  files.Put("data/y.npy", Array("|u1", "(3,)", "abc"));
  EXPECT_EQ(OpenNpy(files, "data", {}).status(),
            absl::DataLossError("data/y.npy: found 3 samples, but data/x.npy has 2"));
  files.Put("none/x", "");
  EXPECT_EQ(OpenNpy(files, "none", {}).status(), absl::DataLossError("none: found no array, expected one or more"));
  EXPECT_TRUE(absl::IsNotFound(OpenNpy(files, "nowhere", {}).status()));
}

TEST(NpySourceTest, BrokenArchivesAreRefused) {
  const std::string x = Array("|u1", "(3,)", "abc");
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
      {"PK", "data: broken zip archive: no end of a directory was found"},
      {zip.substr(0, zip.size() - 1), "data: broken zip archive: no end of a directory was found"},
      {zip + "x", "data: broken zip archive: no end of a directory was found"},
      {with(zip, zip.size() - 10, word(47)), absl::StrCat("data: broken zip archive: a directory of 47 bytes at byte ",
                                                          directory, ", expected it to end at byte ", zip.size() - 22)},
      {with(zip, zip.size() - 14, half(2) + half(2)),
       "data: broken zip archive: the directory has 1 entries, expected 2"},
      {with(zip, directory, "PK\x01\x03"), "data: broken zip archive: entry 0 of the directory is none"},
      {with(zip, directory + 28, half(500)), "data: broken zip archive: entry 0 ends behind the directory"},
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
      {with(zip, directory + 20, word(0xffffffff)), "data: broken zip archive: \"x.npy\" has no sound zip64 field"},
      {with(deflated, deflated_directory + 24, large),
       absl::StrCat("data: broken zip archive: \"x.npy\" has 2147483647 bytes in ", packed,
                    " packed ones, more than deflate can pack")},
      {with(deflated, deflated_directory + 24, word(static_cast<std::uint32_t>(x.size() - 1))),
       absl::StrCat("data: broken zip archive: \"x.npy\" inflates to more than the ", x.size() - 1,
                    " bytes that the directory promises")},
      {with(deflated, deflated_directory + 24, word(static_cast<std::uint32_t>(x.size() + 1))),
       absl::StrCat("data: broken zip archive: \"x.npy\" inflates from ", packed, " bytes to ", x.size(),
                    ", expected from ", packed, " to ", x.size() + 1)},
      {with(deflated, deflated_directory + 20, word(static_cast<std::uint32_t>(packed - 1))),
       "data: broken zip archive: \"x.npy\" cannot be inflated: it is cut off"},
      {with(deflated, 35, "\xff"), "data: broken zip archive: \"x.npy\" cannot be inflated: invalid block type"},
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
            absl::UnimplementedError("data: \"x.npy\" is encrypted"));
  EXPECT_EQ(Open(&files, with(zip, zip.size() - 18, half(1))).status(),
            absl::UnimplementedError("data: found an archive of several volumes, expected one"));
}

TEST(NpySourceTest, EntriesThatShareTheirDataAreRefused) {
  const std::string x = Array("|u1", "(3,)", "abc");
  std::string zip = Zip({{"x.npy", x, false}, {"x.npy", x, false}});
  const std::size_t second = zip.rfind(std::string("PK\x01\x02", 4));
  zip.replace(second + 42, 4, std::string(4, '\0'));
  MemoryFiles files;
  EXPECT_EQ(Open(&files, zip).status(),
            absl::DataLossError("data: broken zip archive: the entries at bytes 0 and 0 overlap"));
}

TEST(NpySourceTest, BrokenLargeArchivesAreRefused) {
  const std::string zip = Zip({{"x.npy", Array("|u1", "(3,)", "abc"), false}}, /*wide=*/true);
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
  const std::string zeros = Array("|u1", "(1000000,)", std::string(1'000'000, '\0'));
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
  const auto source = Open(&files, Array("<f8", "(2, 2)", Bytes<double>({1, 1e300, 1, 2})));
  EXPECT_EQ((*source)->Read(0).status(),
            absl::DataLossError("data: sample 0: element 1: found 1e+300, expected what a 32 bit float can hold"));
  EXPECT_TRUE((*source)->Read(1).ok());
}

TEST(NpySourceTest, ErrorsOfTheFilesArePassedOn) {
  const std::string zip = Zip({{"x.npy", Array("|u1", "(3,)", "abc"), true}});
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
  const auto source = Open(&files, Array("|u1", "(3,)", "abc"));
  files.FailReads(1, absl::UnavailableError("gone"));
  EXPECT_EQ((*source)->Read(0).status(), absl::UnavailableError("data: gone"));
  EXPECT_TRUE((*source)->Read(0).ok());
}

}  // namespace
}  // namespace downpour::data
