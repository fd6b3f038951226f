#include "trainer/checkpoint/file_system.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/seeds.h"
#include "trainer/checkpoint/testing/fake_file_system.h"

namespace {

bool has_renameat2 = true;

}  // namespace

// In place of libc's: a file system that has it, or not.
extern "C" int renameat2(int from_directory, const char* from, int to_directory, const char* to,
                         unsigned int flags) noexcept {
  if (!has_renameat2) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}

namespace downpour::checkpoint {
namespace {

using testing::FakeFileSystem;

absl::Span<const std::uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

absl::Status Write(FileSystem& system, const std::string& path, const std::string& text, bool sync = false) {
  absl::StatusOr<std::unique_ptr<FileWriter>> file = system.Create(path);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->Append(Bytes(text));
  if (status.ok() && sync) status = (*file)->Sync();
  if (status.ok()) status = (*file)->Close();
  return status;
}

std::string Read(FileSystem& system, const std::string& path) {
  absl::StatusOr<std::unique_ptr<StoreReader>> file = system.Open(path);
  if (!file.ok()) return file.status().ToString();
  std::string text((*file)->size(), '\0');
  const absl::Status status = (*file)->ReadAt(0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return status.ok() ? text : status.ToString();
}

// What both promise.
void KeepsThePromises(FileSystem& system, const std::string& root) {
  ASSERT_TRUE(system.MakeDirectory(root + "/d").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(system.MakeDirectory(root + "/d")));
  EXPECT_TRUE(absl::IsNotFound(system.MakeDirectory(root + "/none/d")));
  ASSERT_TRUE(Write(system, root + "/d/a", "alpha", true).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Write(system, root + "/d/a", "beta")));
  EXPECT_TRUE(absl::IsNotFound(Write(system, root + "/none/a", "beta")));
  EXPECT_EQ(Read(system, root + "/d/a"), "alpha");
  EXPECT_TRUE(absl::IsNotFound(system.Open(root + "/d/b").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(system.Open(root + "/d").status()));
  ASSERT_TRUE(Write(system, root + "/d/b", "beta").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(system.RenameExclusive(root + "/d/b", root + "/d/a")));
  EXPECT_EQ(Read(system, root + "/d/a"), "alpha");
  EXPECT_TRUE(system.RenameExclusive(root + "/d/b", root + "/d/c").ok());
  EXPECT_TRUE(absl::IsNotFound(system.RenameExclusive(root + "/d/b", root + "/d/e")));
  EXPECT_TRUE(system.SyncDirectory(root + "/d").ok());
  EXPECT_TRUE(absl::IsNotFound(system.SyncDirectory(root + "/e")));
  ASSERT_TRUE(system.MakeDirectory(root + "/d/s").ok());
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = system.List(root + "/d");
  ASSERT_TRUE(entries.ok());
  std::set<std::string> listed;
  for (const DirectoryEntry& entry : *entries) {
    listed.insert(entry.directory ? absl::StrCat(entry.name, "/") : absl::StrCat(entry.name, " ", entry.bytes));
  }
  EXPECT_EQ(listed, (std::set<std::string>{"a 5", "c 4", "s/"}));
  EXPECT_TRUE(absl::IsNotFound(system.List(root + "/e").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(system.List(root + "/d/a").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(system.RemoveDirectory(root + "/d")));
  EXPECT_TRUE(system.RemoveDirectory(root + "/d/s").ok());
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = system.Open(root + "/d/a");
  ASSERT_TRUE(reader.ok());
  std::vector<std::uint8_t> bytes(3);
  EXPECT_TRUE((*reader)->ReadAt(2, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "pha");
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->ReadAt(3, absl::MakeSpan(bytes))));
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->ReadAt(~std::uint64_t{0}, absl::MakeSpan(bytes))));
  EXPECT_TRUE(system.Remove(root + "/d/a").ok());
  EXPECT_TRUE(absl::IsNotFound(system.Remove(root + "/d/a")));
  EXPECT_TRUE(system.Remove(root + "/d/c").ok());
  EXPECT_TRUE(system.RemoveDirectory(root + "/d").ok());
  EXPECT_NE(system.UniqueSuffix(), system.UniqueSuffix());
  EXPECT_EQ(system.UniqueSuffix().size(), 16U);
}

class PosixTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/file-system-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    has_renameat2 = true;
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
};

TEST_F(PosixTest, KeepsThePromises) { KeepsThePromises(PosixFileSystem(), folder_); }

TEST_F(PosixTest, KeepsThemWithoutRenameat2) {
  has_renameat2 = false;
  KeepsThePromises(PosixFileSystem(), folder_);
}

TEST_F(PosixTest, AFileThatBecameShorterIsSaid) {
  ASSERT_TRUE(Write(PosixFileSystem(), folder_ + "/a", "alpha").ok());
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = PosixFileSystem().Open(folder_ + "/a");
  ASSERT_TRUE(reader.ok());
  std::filesystem::resize_file(folder_ + "/a", 3);
  std::vector<std::uint8_t> bytes(5);
  EXPECT_EQ((*reader)->ReadAt(0, absl::MakeSpan(bytes)), absl::DataLossError("ends at 3, expected 5 bytes"));
}

TEST_F(PosixTest, SaysWhatTheSystemSaid) {
  EXPECT_EQ(PosixFileSystem().Open(folder_ + "/a").status(),
            absl::NotFoundError("cannot open: No such file or directory"));
  EXPECT_TRUE(absl::IsResourceExhausted(SystemError("x", EDQUOT)));
  EXPECT_TRUE(absl::IsUnavailable(SystemError("x", EIO)));
}

TEST(FakeFileSystemTest, KeepsThePromises) {
  FakeFileSystem system(1);
  ASSERT_TRUE(system.MakeDirectory("/root").ok());
  KeepsThePromises(system, "/root");
}

TEST(FakeFileSystemTest, ACrashKeepsWhatWasSyncedAndNotMuchMore) {
  std::set<std::string> contents;
  std::set<bool> names;
  for (std::uint64_t seed = 0; seed < Seeds(400); ++seed) {
    FakeFileSystem system(seed);
    ASSERT_TRUE(Write(system, "/whole", "whole", true).ok());
    absl::StatusOr<std::unique_ptr<FileWriter>> file = system.Create("/torn");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append(Bytes("ab")).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE(system.SyncDirectory("/").ok());
    ASSERT_TRUE((*file)->Append(Bytes("cd")).ok());
    ASSERT_TRUE(Write(system, "/nameless", "x", true).ok());
    system.Crash();
    EXPECT_TRUE(absl::IsAborted((*file)->Append(Bytes("e")))) << "its process is gone";
    EXPECT_EQ(Read(system, "/whole"), "whole");
    contents.insert(Read(system, "/torn"));
    names.insert(system.Open("/nameless").ok());
  }
  using std::string_literals::operator""s;
  EXPECT_EQ(contents, (std::set<std::string>{"ab", "abc", "abcd", "ab\0\0"s, "abc\0"s}));
  EXPECT_EQ(names, (std::set<bool>{false, true}));
}

TEST(FakeFileSystemTest, ALieKeepsNothing) {
  bool lost = false;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    FakeFileSystem system(seed);
    system.LieAboutSync(1);
    ASSERT_TRUE(Write(system, "/a", "alpha", true).ok());
    ASSERT_TRUE(system.SyncDirectory("/").ok());
    system.Crash();
    lost = lost || Read(system, "/a") != "alpha";
  }
  EXPECT_TRUE(lost);
}

TEST(FakeFileSystemTest, FailsDiesAndFillsUpWhereItIsTold) {
  FakeFileSystem system(1);
  system.FailAt(system.operations(), EIO);
  EXPECT_EQ(system.Create("/a").status(), SystemError("cannot create", EIO));
  system.LimitBytes(3);
  EXPECT_EQ(Write(system, "/a", "alpha"), SystemError("cannot write", ENOSPC));
  EXPECT_EQ(Read(system, "/a"), "alp");
  ASSERT_TRUE(system.Remove("/a").ok());
  system.LimitBytes(std::nullopt);
  system.DieAt(system.operations() + 1);
  EXPECT_TRUE(absl::IsAborted(Write(system, "/a", "alpha")));
  EXPECT_TRUE(absl::IsAborted(system.Remove("/a")));
  system.Restart();
  EXPECT_EQ(system.Files(), std::vector<std::string>{"/a"});
  EXPECT_TRUE(system.Remove("/a").ok());
}

}  // namespace
}  // namespace downpour::checkpoint
