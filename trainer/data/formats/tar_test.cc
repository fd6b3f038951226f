#include "trainer/data/formats/tar.h"

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "trainer/data/encoding.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/tar_builder.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Entries = std::vector<std::pair<std::string, std::string>>;

// Names and contents. Each entry is found again from its own place.
absl::StatusOr<Entries> ReadAll(const std::string& archive) {
  MemoryFiles files;
  files.Put("a.tar", archive);
  const auto file = files.Open("a.tar");
  TarReader tar(**file);
  Entries entries;
  while (true) {
    const absl::StatusOr<std::optional<TarEntry>> next = tar.Next();
    if (!next.ok()) return next.status();
    if (!next->has_value()) return entries;
    const TarEntry& entry = **next;
    const auto bytes = tar.Read(entry);
    if (!bytes.ok()) return bytes.status();
    entries.emplace_back(entry.name, AsText(*bytes));

    TarReader again(**file, entry.begin, entry.end);
    const std::int64_t reads = files.reads();
    const auto same = again.Next();
    EXPECT_TRUE(same.ok() && same->has_value()) << same.status();
    EXPECT_EQ((*same)->name, entry.name);
    EXPECT_EQ(AsText(*again.Read(**same)), entries.back().second);
    EXPECT_FALSE((*again.Next()).has_value());
    EXPECT_EQ(files.reads() - reads, 1) << "a sample is one read";
  }
}

std::string MessageOf(const std::string& archive) {
  const auto entries = ReadAll(archive);
  EXPECT_TRUE(absl::IsDataLoss(entries.status())) << entries.status();
  return std::string(entries.status().message());
}

TEST(TarTest, ReadsWhatUstarPaxAndGnuWrite) {
  const std::string long_name = "folder/" + std::string(150, 'n') + ".txt";
  TarBuilder tar;
  tar.Entry('5', "./", "").Entry('5', "folder/", "");
  tar.File("./folder/a.txt", "one");
  tar.File("empty", "");
  tar.File("block", std::string(512, 'b'));
  tar.Entry('0', "name.txt", "prefix", "in/a/prefix");
  tar.Entry('L', "././@LongLink", long_name + '\0').Entry('0', long_name, "gnu");
  tar.Pax("path", long_name + "x").Entry('0', "short", "pax");
  tar.Pax("mtime", "1.5").Pax("size", "4").Header('0', "size", "00000000000").Blocks("four");
  tar.Entry('g', "pax_global_header", "16 comment=none\n").Entry('\0', "old", "v7");
  tar.Header('0', "binary", std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12)).Blocks("gnu");
  const auto entries = ReadAll(tar.End());
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(*entries,
              ElementsAre(Pair("folder/a.txt", "one"), Pair("empty", ""), Pair("block", std::string(512, 'b')),
                          Pair("in/a/prefix/name.txt", "prefix"), Pair(long_name, "gnu"), Pair(long_name + "x", "pax"),
                          Pair("size", "four"), Pair("old", "v7"), Pair("binary", "gnu")));
}

TEST(TarTest, AnArchiveMayEndWithItsLastEntry) {
  EXPECT_TRUE(ReadAll("")->empty());
  EXPECT_TRUE(ReadAll(std::string(10'240, '\0'))->empty());
  EXPECT_EQ(ReadAll(TarBuilder().File("a", "1").bytes())->size(), 1U);
  const std::string unpadded = TarBuilder().File("a", "123").bytes().substr(0, 515);
  EXPECT_THAT(*ReadAll(unpadded), ElementsAre(Pair("a", "123")));
}

TEST(TarTest, ErrorsSayWhereAndWhat) {
  const std::string first = TarBuilder().File("a.txt", "1").bytes();  // 1024 bytes
  const auto after = [&first](const TarBuilder& tar) { return MessageOf(first + tar.End()); };
  EXPECT_EQ(after(TarBuilder().File("b/../../c.txt", "")),
            "a.tar: byte 1024: entry \"b/../../c.txt\" has \"..\" in its name, expected one that stays in its folder");
  EXPECT_EQ(after(TarBuilder().File("..", "")),
            "a.tar: byte 1024: entry \"..\" has \"..\" in its name, expected one that stays in its folder");
  EXPECT_EQ(after(TarBuilder().File("/etc/passwd", "")),
            "a.tar: byte 1024: entry \"/etc/passwd\" has an absolute name, expected one that begins without a slash");
  EXPECT_EQ(after(TarBuilder().Pax("path", "../up").File("b", "")),
            "a.tar: byte 2048: entry \"../up\" has \"..\" in its name, expected one that stays in its folder");
  EXPECT_EQ(after(TarBuilder().File("", "")), "a.tar: byte 1024: an entry without a name, expected one");
  EXPECT_EQ(after(TarBuilder().File("./", "")), "a.tar: byte 1024: an entry without a name, expected one");
  EXPECT_EQ(after(TarBuilder().Entry('2', "link", "")),
            "a.tar: byte 1024: entry \"link\" is a symbolic link, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Entry('1', "link", "")),
            "a.tar: byte 1024: entry \"link\" is a hard link, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Entry('3', "null", "")),
            "a.tar: byte 1024: entry \"null\" is a device, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Entry('6', "pipe", "")),
            "a.tar: byte 1024: entry \"pipe\" is a pipe, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Entry('S', "holes", "")),
            "a.tar: byte 1024: entry \"holes\" is a sparse file, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Pax("GNU.sparse.major", "1").File("holes", "")),
            "a.tar: byte 1024: a sparse file, expected a regular one");
  EXPECT_EQ(after(TarBuilder().Entry('Z', "odd", "")),
            "a.tar: byte 1024: entry \"odd\" is of a kind that is not known, expected a regular file");
  EXPECT_EQ(after(TarBuilder().Header('0', "large", "77777777777")),
            "a.tar: byte 1024: entry \"large\" has 8589934591 bytes, but the file ends after 1024");
  EXPECT_EQ(after(TarBuilder().Header('0', "large", std::string(12, '\xff'))),
            "a.tar: byte 1024: entry \"large\" has a size that is no number, expected octal digits");
  EXPECT_EQ(after(TarBuilder().Header('0', "large", absl::StrCat("\x80", std::string(11, '\x7f')))),
            "a.tar: byte 1024: entry \"large\" has a size that is no number, expected octal digits");
  EXPECT_EQ(after(TarBuilder().Header('0', "odd", "12x")),
            "a.tar: byte 1024: entry \"odd\" has a size that is no number, expected octal digits");
  EXPECT_EQ(after(TarBuilder().Pax("size", "18446744073709551615").File("large", "")),
            "a.tar: byte 2048: entry \"large\" has 18446744073709551615 bytes, but the file ends after 1024");
  EXPECT_EQ(after(TarBuilder().Pax("size", "-1").File("b", "")),
            "a.tar: byte 1024: a pax header with a size that is none, expected a number");
  EXPECT_EQ(after(TarBuilder().Entry('x', "pax", "99 path=a\n").File("b", "")),
            "a.tar: byte 1024: a pax header with a record that is none, expected LENGTH KEY=VALUE");
  EXPECT_EQ(after(TarBuilder().Entry('x', "pax", "3 a").File("b", "")),
            "a.tar: byte 1024: a pax header with a record that is none, expected LENGTH KEY=VALUE");
  EXPECT_EQ(after(TarBuilder().Entry('x', "pax", std::string((1 << 20) + 1, ' '))),
            "a.tar: byte 1024: a header of 1048577 bytes, expected 1048576 at most");
  EXPECT_EQ(after(TarBuilder().Pax("path", "b")),
            "a.tar: byte 2048: the archive ends, expected the entry that the headers before are of");
  EXPECT_EQ(MessageOf(TarBuilder().Pax("path", "b").bytes()),
            "a.tar: byte 1024: the file ends, expected the entry that the headers before are of");
  EXPECT_EQ(MessageOf(first + "half a header"), "a.tar: byte 1024: 13 bytes are left, expected a header of 512");
  EXPECT_EQ(MessageOf(first + std::string(512, 'x')),
            "a.tar: byte 1024: is no tar header: checksum without digits, expected 60736");
  std::string flipped = first;
  flipped[0] = 'b';
  EXPECT_EQ(MessageOf(flipped), "a.tar: byte 0: is no tar header: checksum 2861, expected 2862");
  EXPECT_EQ(MessageOf(TarBuilder().File("a", "1").End() + TarBuilder().File("b", "2").End()),
            "a.tar: byte 2048: something behind the end of the archive, expected zeros");
}

TEST(TarTest, ErrorsOfTheFileAreGivenOn) {
  MemoryFiles files;
  files.Put("a.tar", TarBuilder().File("a", "1").End());
  const auto file = files.Open("a.tar");
  files.FailReads(1, absl::UnavailableError("the store is down"));
  TarReader tar(**file);
  EXPECT_TRUE(absl::IsUnavailable(tar.Next().status()));
  EXPECT_TRUE(tar.Next().ok()) << "it may be well later";
}

}  // namespace
}  // namespace downpour::data
