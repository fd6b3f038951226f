#include "trainer/checkpoint/directory_store.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/seeds.h"
#include "trainer/checkpoint/testing/fake_file_system.h"

namespace downpour::checkpoint {
namespace {

using testing::FakeFileSystem;

absl::Span<const std::uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

absl::Status Put(Store& store, const std::string& name, const std::string& text) {
  absl::StatusOr<std::unique_ptr<StoreWriter>> writer = store.Create(name);
  if (!writer.ok()) return writer.status();
  for (std::size_t at = 0; at < text.size(); at += 1000) {
    if (absl::Status status = (*writer)->Append(Bytes(text.substr(at, 1000))); !status.ok()) return status;
  }
  return (*writer)->Commit();
}

// The content, or the error.
std::string Get(Store& store, const std::string& name) {
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = store.Open(name);
  if (!reader.ok()) return reader.status().ToString();
  std::string text((*reader)->size(), '\0');
  const absl::Status status = (*reader)->ReadAt(0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return status.ok() ? text : status.ToString();
}

std::vector<std::string> Names(Store& store, const std::string& prefix = "") {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<StoredFile>> files = store.List(prefix);
  EXPECT_TRUE(files.ok()) << files.status();
  if (files.ok()) {
    for (const StoredFile& file : *files) names.push_back(file.name + " " + std::to_string(file.bytes));
  }
  return names;
}

using Strings = std::vector<std::string>;

TEST(DirectoryStoreTest, KeepsWholeFilesUnderTheirNames) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/mnt/checkpoints/");
  EXPECT_EQ(store->uri(), "/mnt/checkpoints/");
  EXPECT_EQ(Names(*store), Strings{}) << "a store that is not there yet is empty";
  EXPECT_TRUE(absl::IsNotFound(store->Open("a").status()));
  EXPECT_TRUE(store->Remove("a/b").ok());
  EXPECT_TRUE(store->RemoveLeftovers("").ok());

  absl::StatusOr<std::unique_ptr<StoreWriter>> writer = store->Create("a/b");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(Bytes("alpha")).ok());
  EXPECT_EQ(Names(*store), Strings{}) << "nothing is there before it is whole";
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*writer)->Commit()));
  ASSERT_TRUE(Put(*store, "a/c", "").ok());
  ASSERT_TRUE(Put(*store, "ab", "beta").ok());
  EXPECT_EQ(Names(*store), (Strings{"a/b 5", "a/c 0", "ab 4"}));
  EXPECT_EQ(Names(*store, "a/"), (Strings{"a/b 5", "a/c 0"}));
  EXPECT_EQ(Names(*store, "a/b"), (Strings{"a/b 5"}));
  EXPECT_EQ(Names(*store, "ab"), (Strings{"ab 4"}));
  EXPECT_EQ(Names(*store, "b"), Strings{});
  EXPECT_EQ(Get(*store, "a/b"), "alpha");
  EXPECT_EQ(Put(*store, "a/b", "other"), absl::AlreadyExistsError("/mnt/checkpoints/a/b: is there already"));
  EXPECT_EQ(Get(*store, "a/b"), "alpha");

  ASSERT_TRUE(store->Remove("a/b").ok());
  ASSERT_TRUE(store->Remove("a/c").ok());
  EXPECT_TRUE(absl::IsNotFound(system.List("/mnt/checkpoints/a").status())) << "directories that are empty go";
  ASSERT_TRUE(store->Remove("ab").ok());
  EXPECT_TRUE(system.List("/mnt/checkpoints").ok()) << "but the store";
}

TEST(DirectoryStoreTest, RefusesOtherNames) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  for (const char* name :
       {"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", ".a", "a/.b", "a b", "a\n", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(store->Create(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store->Open(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store->Remove(name))) << name;
  }
}

TEST(DirectoryStoreTest, OfTwoWritersOfOneNameOneWins) {
  for (std::uint64_t seed = 0; seed < Seeds(50); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> one = MakeDirectoryStore(system, "/s");
    const std::unique_ptr<Store> other = MakeDirectoryStore(system, "/s");
    absl::StatusOr<std::unique_ptr<StoreWriter>> first = one->Create("d/a");
    absl::StatusOr<std::unique_ptr<StoreWriter>> second = other->Create("d/a");
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_TRUE((*first)->Append(Bytes("first")).ok());
    ASSERT_TRUE((*second)->Append(Bytes("second")).ok());
    EXPECT_TRUE((*second)->Commit().ok());
    EXPECT_TRUE(absl::IsAlreadyExists((*first)->Commit()));
    first->reset();
    second->reset();
    EXPECT_EQ(Get(*one, "d/a"), "second");
    EXPECT_EQ(system.Files(), Strings{"/s/d/a"}) << "and nothing else is left";
  }
}

TEST(DirectoryStoreTest, LeftoversGoByTheNameThatTheyWereFor) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  ASSERT_TRUE(Put(*store, "a/whole", "x").ok());
  absl::StatusOr<std::unique_ptr<StoreWriter>> mine = store->Create("a/b");
  absl::StatusOr<std::unique_ptr<StoreWriter>> another = store->Create("b/b");
  ASSERT_TRUE(mine.ok() && another.ok());
  system.DieAt(system.operations());
  EXPECT_FALSE(store->List("").ok()) << "from now on nobody tidies up";
  mine->reset();
  another->reset();
  system.Restart();
  EXPECT_EQ(system.Files().size(), 3U);
  EXPECT_EQ(Names(*store), Strings{"a/whole 1"});
  ASSERT_TRUE(store->RemoveLeftovers("a/").ok());
  EXPECT_EQ(system.Files().size(), 2U);
  ASSERT_TRUE(store->RemoveLeftovers("").ok());
  EXPECT_EQ(system.Files(), Strings{"/s/a/whole"});
}

TEST(DirectoryStoreTest, AFullDiskIsSaidAndHarmsNothing) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  ASSERT_TRUE(Put(*store, "a/old", "old").ok());
  system.LimitBytes(5000);
  EXPECT_EQ(Put(*store, "a/new", std::string(6000, 'x')),
            absl::ResourceExhaustedError("/s/a/new: cannot write: No space left on device"));
  EXPECT_EQ(system.Files(), Strings{"/s/a/old"});
  EXPECT_TRUE(Put(*store, "a/new", std::string(4000, 'x')).ok()) << "the space is free again";
}

// After OK it is there for ever; else it is there, whole, or not there.
TEST(DirectoryStoreTest, WhateverFailsAFileIsWholeOrAbsent) {
  const std::string content(3500, 'c');
  for (std::uint64_t seed = 0; seed < Seeds(40); ++seed) {
    for (std::uint64_t operation = 0;; ++operation) {
      FakeFileSystem system(seed);
      const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/mnt/s");
      ASSERT_TRUE(Put(*store, "a/old", "old").ok());
      const std::uint64_t at = system.operations() + operation;
      const bool dies = seed % 2 == 0;
      if (dies) {
        system.DieAt(at);
      } else {
        system.FailAt(at, EIO);
      }
      const absl::Status put = Put(*store, "a/b/new", content);
      const bool reached = system.operations() > at;
      if (seed % 4 == 0) {
        system.Restart();
      } else {
        system.Crash();
      }
      const std::string context = absl::StrCat("seed ", seed, " operation ", operation);
      EXPECT_EQ(Get(*store, "a/old"), "old") << context;
      const absl::StatusOr<std::unique_ptr<StoreReader>> there = store->Open("a/b/new");
      EXPECT_TRUE(there.ok() || !put.ok()) << context;
      if (there.ok()) {
        EXPECT_EQ(Get(*store, "a/b/new"), content) << context;
      }
      ASSERT_TRUE(store->RemoveLeftovers("a/").ok()) << context;
      EXPECT_EQ(system.Files().size(), there.ok() ? 2U : 1U) << context;
      if (!reached) break;
    }
  }
}

// Also where what failed, or was cut short, was to sync the directories above, which are there when it is tried again.
TEST(DirectoryStoreTest, WhatSucceedsAfterAFailureIsThereForEver) {
  for (std::uint64_t seed = 0; seed < Seeds(40); ++seed) {
    for (std::uint64_t operation = 0;; ++operation) {
      FakeFileSystem system(seed);
      std::unique_ptr<Store> store = MakeDirectoryStore(system, "/mnt/s/job");
      const bool dies = seed % 2 == 0;
      if (dies) {
        system.DieAt(operation);
      } else {
        system.FailAt(operation, EIO);
      }
      const absl::Status first = Put(*store, "a/first", "first");
      if (system.operations() <= operation) break;  // what follows would meet it
      if (dies) {
        system.Restart();
        store = MakeDirectoryStore(system, "/mnt/s/job");
      }
      ASSERT_TRUE(Put(*store, "a/second", "second").ok());
      system.Crash();
      EXPECT_EQ(Get(*store, "a/second"), "second") << "seed " << seed << " operation " << operation << ": " << first;
    }
  }
}

TEST(OpenStoreTest, TellsDirectoriesFromOthers) {
  EXPECT_TRUE(OpenStore("/tmp/x").ok());
  EXPECT_TRUE(OpenStore("relative").ok());
  ASSERT_EQ(::setenv("AWS_ACCESS_KEY_ID", "id", 1), 0);
  ASSERT_EQ(::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1), 0);
  const auto s3 = OpenStore("s3://bucket/prefix");
  ASSERT_TRUE(s3.ok()) << s3.status();
  EXPECT_EQ((*s3)->uri(), "s3://bucket/prefix");
  EXPECT_TRUE(absl::IsInvalidArgument(OpenStore("s3://").status()));
  for (const char* uri : {"", "https://a/b", "gs://bucket"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(OpenStore(uri).status())) << uri;
  }
}

class RealDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/directory-store-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(RealDirectoryTest, IsMadeWithTheFirstFile) {
  const absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(folder_ + "/x/y/");
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(Names(**store), Strings{});
  ASSERT_TRUE(Put(**store, "a/b", "alpha").ok());
  EXPECT_EQ(Get(**store, "a/b"), "alpha");
  EXPECT_EQ(Names(**store), Strings{"a/b 5"});
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenStore(folder_ + "/x/y/a/b").value()->List("").status()));
}

TEST_F(RealDirectoryTest, OfManyWritersOfOneNameOneWins) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = "d/" + std::to_string(round);
    std::atomic<int> won{-1};
    std::atomic<int> lost{0};
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] {
        const auto store = OpenStore(folder_);
        const absl::Status status = Put(**store, name, std::string(5000, static_cast<char>('a' + i)));
        if (status.ok()) won = i;
        if (absl::IsAlreadyExists(status)) ++lost;
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(lost, 3);
    ASSERT_NE(won, -1);
    EXPECT_EQ(Get(**OpenStore(folder_), name), std::string(5000, static_cast<char>('a' + won)));
  }
}

// In a child, as the mounts of a process are its own only after unshare.
TEST_F(RealDirectoryTest, ADiskThatIsReallyFull) {
  constexpr int kSkipped = 77;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool mounts = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("none", folder_.c_str(), "tmpfs", 0, "size=256k") == 0;
    if (!mounts) _exit(kSkipped);
    const auto store = OpenStore(folder_);
    const absl::Status old = Put(**store, "a/old", "old");
    const absl::Status full = Put(**store, "a/new", std::string(1 << 20, 'x'));
    const bool said = full == absl::ResourceExhaustedError(folder_ + "/a/new: cannot write: No space left on device");
    const bool whole = old.ok() && Names(**store) == Strings{"a/old 3"} && Get(**store, "a/old") == "old";
    const bool again = Put(**store, "a/new", std::string(1 << 16, 'x')).ok();
    _exit(said && whole && again ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mounts for this user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace downpour::checkpoint
