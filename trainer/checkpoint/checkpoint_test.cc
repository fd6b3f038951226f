#include "trainer/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/seeds.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/testing/fake_file_system.h"
#include "trainer/checkpoint/testing/sample_checkpoint.h"
#include "trainer/core/bitmap.h"

namespace downpour::checkpoint {
namespace {

using ::testing::AnyOf;
using testing::CompareSample;
using ::testing::ElementsAre;
using testing::FakeFileSystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeSampleJob;
using testing::SampleJob;
using testing::SamplePart;
using testing::WriteSample;

constexpr char kUid[] = "00112233445566778899aabbccddeeff";
constexpr char kName[] = "cut-0000000001-g1-i1-00112233";

std::vector<std::string> Names(Store& store) {
  std::vector<std::string> names;
  const absl::StatusOr<CheckpointList> list = ListCheckpoints(store);
  EXPECT_TRUE(list.ok()) << list.status();
  if (list.ok()) {
    for (const ListedCheckpoint& checkpoint : list->checkpoints) names.push_back(checkpoint.name);
  }
  return names;
}

TEST(CheckpointNameTest, IsReadAsItIsWritten) {
  EXPECT_EQ(CheckpointName(12, 1, 1, "00112233-4455-6677-8899-AABBCCDDEEFF"), "cut-0000000012-g1-i1-00112233");
  EXPECT_EQ(CheckpointName(4294967295U, ~std::uint64_t{0}, 7, kUid),
            "cut-4294967295-g18446744073709551615-i7-00112233");
  EXPECT_EQ(ParseCheckpointName("cut-0000000012-g3-i4-00112233"), (CheckpointId{12, 3, 4, "00112233"}));
  EXPECT_EQ(ParseCheckpointName(CheckpointName(4294967295U, ~std::uint64_t{0}, 7, kUid)),
            (CheckpointId{4294967295U, ~std::uint64_t{0}, 7, "00112233"}));
  for (const char* name :
       {"", "cut", "cut-12-g3-i4-00112233", "cut-0000000012-g3-i4-0011223", "cut-0000000012-g3-i4-0011223G",
        "cut-0000000012-g03-i4-00112233", "cut-0000000012-g3-i4-00112233-", "cut-0000000012-3-i4-00112233",
        "cut-4294967296-g1-i1-00112233", "cut-0000000012-g-i4-00112233", "cat-0000000012-g3-i4-00112233",
        "cut-0000000012-g3-i4-00112233/a", "cut-0000000012-g+3-i4-00112233"}) {
    EXPECT_FALSE(ParseCheckpointName(name).has_value()) << name;
  }
}

TEST(CheckpointUriTest, IsAFolderOrOneInIt) {
  const auto parsed = [](const char* uri) {
    const CheckpointLocation location = ParseCheckpointUri(uri);
    return location.store + " " + location.checkpoint;
  };
  const std::string name = kName;
  EXPECT_EQ(parsed("/a/b/"), "/a/b/ ");
  EXPECT_EQ(parsed("s3://bucket/jobs"), "s3://bucket/jobs ");
  EXPECT_EQ(parsed(("/a/" + name).c_str()), "/a " + name);
  EXPECT_EQ(parsed(("/a/" + name + "/").c_str()), "/a " + name);
  EXPECT_EQ(parsed(("/" + name).c_str()), "/ " + name);
  EXPECT_EQ(parsed(name.c_str()), ". " + name);
  EXPECT_EQ(parsed(("s3://bucket/jobs/" + name).c_str()), "s3://bucket/jobs " + name);
  EXPECT_EQ(parsed(""), " ");
}

TEST(CheckpointTest, WhatIsWrittenByAFewIsReadByAnyone) {
  for (std::uint64_t seed = 0; seed < Seeds(40); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    const SampleJob job = MakeSampleJob(seed, 1, seed == 0);
    const auto ps_count = static_cast<std::uint32_t>(1 + seed % 7);  // more than there are slices, too
    ASSERT_TRUE(WriteSample(*store, job, ps_count).ok()) << seed;
    EXPECT_EQ(CompareSample(*store, job), absl::OkStatus()) << seed;
    EXPECT_EQ(Verify(*store, kName), absl::OkStatus()) << seed;
    EXPECT_THAT(Names(*store), ElementsAre(kName));
    EXPECT_TRUE(absl::IsAlreadyExists(WriteSample(*store, job, ps_count)));
    system.Crash();
    EXPECT_EQ(CompareSample(*store, job), absl::OkStatus()) << seed;
  }
}

TEST(CheckpointTest, ASnapshotIsReleasedBeforeTheNextIsTaken) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  const SampleJob job = MakeSampleJob(1);
  std::vector<std::weak_ptr<const std::vector<float>>> given;
  const absl::StatusOr<v1::PsFiles> files = WritePsFiles(*store, SamplePart(job, 0, 1), [&](std::uint32_t slice) {
    for (const auto& one : given) EXPECT_TRUE(one.expired());
    core::SliceSnapshot snapshot = job.slices[slice];
    snapshot.value = std::make_shared<const std::vector<float>>(*snapshot.value);
    given.emplace_back(snapshot.value);
    return absl::StatusOr<core::SliceSnapshot>(std::move(snapshot));
  });
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(given.size(), job.slices.size());
}

TEST(CheckpointTest, WhatTheSourceRefusesLeavesNothing) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  const SampleJob job = MakeSampleJob(1);
  const auto give = [&](std::uint32_t slice) -> absl::StatusOr<core::SliceSnapshot> {
    if (slice == 2) return absl::CancelledError("the cut is over");
    return job.slices[slice];
  };
  EXPECT_EQ(WritePsFiles(*store, SamplePart(job, 0, 1), give).status(), absl::CancelledError("the cut is over"));
  EXPECT_THAT(system.Files(), IsEmpty());
  const auto wrong = [&](std::uint32_t) { return absl::StatusOr<core::SliceSnapshot>(job.slices[1]); };
  EXPECT_TRUE(absl::IsInvalidArgument(WritePsFiles(*store, SamplePart(job, 0, 1), wrong).status()));
  EXPECT_THAT(system.Files(), IsEmpty());
}

// As trainer/core/ps.cc has it: what all tables agree on.
TEST(CheckpointTest, TheLedgerIsWhatAllSlicesHold) {
  for (std::uint64_t seed = 0; seed < Seeds(40); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    const SampleJob job = MakeSampleJob(seed);
    ASSERT_TRUE(WriteSample(*store, job, 3).ok());
    const v1::CheckpointManifest manifest = *ReadManifest(*store, kName);
    const core::DataPlan plan = *core::DataPlan::Create(manifest.data());
    std::uint64_t updates = std::numeric_limits<std::uint64_t>::max();
    for (const core::SliceSnapshot& snapshot : job.slices) updates = std::min(updates, snapshot.table.version());
    for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
        bool everywhere = true;
        for (const core::SliceSnapshot& snapshot : job.slices) {
          bool here = epoch < snapshot.table.watermark();
          for (const v1::EpochTable& table : snapshot.table.epochs()) {
            here = here || (table.dataset_epoch() == epoch &&
                            core::Bitmap::FromBytes(plan.shards_in_epoch(epoch), table.retired()).Test(shard));
          }
          everywhere = everywhere && here;
        }
        bool said = epoch < manifest.watermark();
        for (const v1::EpochLedger& ledger : manifest.ledger()) {
          said = said || (ledger.dataset_epoch() == epoch &&
                          core::Bitmap::FromBytes(plan.shards_in_epoch(epoch), ledger.retired()).Test(shard));
        }
        EXPECT_EQ(said, everywhere) << "seed " << seed << " epoch " << epoch << " shard " << shard;
      }
    }
    EXPECT_EQ(manifest.updates(), updates) << seed;
  }
}

TEST(CheckpointTest, APsWithoutSlicesLacksNothing) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  PsCut part = SamplePart(MakeSampleJob(1), 0, 1);
  part.slices.clear();
  const absl::StatusOr<v1::PsFiles> files =
      WritePsFiles(*store, part, [](std::uint32_t) { return absl::InternalError("asked for nothing"); });
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->watermark(), part.data.epochs());
  EXPECT_EQ(files->ledger_size(), 0);
}

TEST(CheckpointTest, AManifestHasEachSliceOnce) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  const SampleJob job = MakeSampleJob(1);
  ASSERT_TRUE(WriteSample(*store, job, 2).ok());
  const v1::CheckpointManifest good = *ReadManifest(*store, kName);
  const std::vector<v1::PsFiles> files(good.files().begin(), good.files().end());
  ASSERT_TRUE(MakeManifest(job.identity, {files[1], files[0]}).ok()) << "in any order";
  EXPECT_THAT(MakeManifest(job.identity, {files[0]}).status().message(), HasSubstr("slices, the tensors 4"));
  EXPECT_FALSE(MakeManifest(job.identity, {files[0], files[0]}).ok());
  EXPECT_FALSE(MakeManifest(job.identity, {files[0], files[1], files[1]}).ok());
  using Change = std::function<void(v1::CheckpointManifest&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](auto& m) { m.set_job_uid("x"); }, "job uid"},
      {[](auto& m) { m.mutable_data()->set_epochs(0); }, "data plan"},
      {[](auto& m) { m.mutable_tensors(0)->set_shape(0, -1); }, "no shape"},
      {[](auto& m) { m.mutable_tensors(0)->set_shape(0, std::int64_t{1} << 40); }, "slices, the tensors"},
      {[](auto& m) { m.mutable_files(0)->mutable_weights()->set_name("../x"); }, "expected ps-0.safetensors"},
      {[](auto& m) { m.mutable_files(0)->set_slices(0, 9); }, "slice 9, there are 4"},
      {[](auto& m) { m.mutable_files(0)->set_slices(0, m.files(1).slices(0)); }, ""},
      {[](auto& m) { m.mutable_files(1)->set_ps(0); }, "is there twice"},
      {[](auto& m) { m.mutable_files(1)->set_watermark(99); }, "ps 1: watermark 99"},
      {[](auto& m) { m.set_watermark(m.watermark() + 1); }, "that of the files"},
      {[](auto& m) { m.set_updates(m.updates() + 1); }, "updates, the files have"},
      {[](auto& m) { m.add_ledger()->set_dataset_epoch(3); }, "not what the files hold"},
  };
  for (const auto& [change, message] : changes) {
    v1::CheckpointManifest manifest = good;
    change(manifest);
    const absl::Status status = CheckManifest(manifest);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_FALSE(WriteManifest(*store, manifest).ok());
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(std::vector<std::uint8_t>([&] {
                                   const std::string bytes = EncodeManifest(manifest);
                                   return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
                                 }()))
                                     .status()));
  }
}

TEST(CheckpointTest, AManifestThatNobodyCouldReadIsNotWritten) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  SampleJob job = MakeSampleJob(1);
  job.identity.set_job_name("\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(WriteSample(*store, job, 1)));
  EXPECT_THAT(Names(*store), IsEmpty());
}

// Whatever is wrong with a file of a checkpoint: it is found, and said.
TEST(CheckpointTest, DamageIsFound) {
  for (std::uint64_t seed = 0; seed < Seeds(20); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    const SampleJob job = MakeSampleJob(seed);
    ASSERT_TRUE(WriteSample(*store, job, 2).ok());
    std::mt19937_64 random(seed);
    for (const std::string& path : system.Files()) {
      if (path.ends_with(kOpenFile)) continue;
      const std::string file = path.substr(path.rfind('/') + 1);
      std::string& content = system.Content(path);
      const std::string whole = content;
      const auto broken = [&](const std::string& how) {
        const absl::Status verified = Verify(*store, kName);
        EXPECT_TRUE(absl::IsDataLoss(verified)) << file << " " << how << ": " << verified;
        EXPECT_THAT(verified.message(), AnyOf(HasSubstr(file), HasSubstr("ps-"))) << how;
        const absl::Status compared = CompareSample(*store, job);
        EXPECT_FALSE(absl::IsInternal(compared)) << file << " " << how << ": other content was handed over";
        content = whole;
      };
      for (std::size_t at = 0; at < whole.size(); at += 1 + random() % 3) {
        content[at] = static_cast<char>(content[at] ^ static_cast<char>(1U << (random() % 8)));
        broken(absl::StrCat("flipped at ", at));
      }
      for (std::size_t length = 0; length < whole.size(); length += 1 + random() % 7) {
        content.resize(length);
        EXPECT_THAT(Names(*store), IsEmpty()) << file << " cut to " << length;
        broken(absl::StrCat("cut to ", length));
      }
      content += '\0';
      EXPECT_THAT(Names(*store), IsEmpty());
      broken("one byte longer");
      for (std::size_t from = 0; from < whole.size(); from += 1 + random() % 16) {
        content.replace(from, whole.size() - from, whole.size() - from, '\0');
        if (content != whole) {
          broken(absl::StrCat("zeros from ", from));
        }
      }
    }
    EXPECT_EQ(Verify(*store, kName), absl::OkStatus());
  }
}

TEST(CheckpointTest, FilesThatAreMissingOrOfAnotherCutAreFound) {
  const SampleJob job = MakeSampleJob(1);
  const SampleJob next = MakeSampleJob(1, 2);
  for (const char* file : {"MANIFEST", "ps-0.safetensors", "ps-0.state", "ps-1.safetensors", "ps-1.state"}) {
    FakeFileSystem system(1);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    ASSERT_TRUE(WriteSample(*store, job, 2).ok());
    ASSERT_TRUE(WriteSample(*store, next, 2).ok());
    const std::string path = absl::StrCat("/s/", kName, "/", file);
    const std::string other = absl::StrCat("/s/", CheckpointName(next.identity), "/", file);
    system.Content(path) = system.Content(other);
    EXPECT_TRUE(absl::IsDataLoss(Verify(*store, kName))) << file;
    EXPECT_FALSE(CompareSample(*store, job).ok()) << file;
    system.Erase(path);
    EXPECT_FALSE(Verify(*store, kName).ok()) << file;
    EXPECT_THAT(Names(*store), ElementsAre(CheckpointName(next.identity))) << file;
    const CheckpointList list = *ListCheckpoints(*store);
    ASSERT_EQ(list.skipped.size(), 1U);
    EXPECT_EQ(list.skipped[0].name, kName);
    EXPECT_EQ(list.skipped[0].unfinished, std::string(file) == kManifestFile);
    if (!list.skipped[0].unfinished) {
      EXPECT_EQ(list.skipped[0].reason, absl::StrCat(file, " is missing"));
    }
  }
}

TEST(CheckpointTest, AListSaysWhatIsWrong) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  ASSERT_TRUE(WriteSample(*store, MakeSampleJob(1), 2).ok());
  std::string& content = system.Content(absl::StrCat("/s/", kName, "/ps-1.state"));
  const std::size_t bytes = content.size();
  content.resize(100);
  const CheckpointList list = *ListCheckpoints(*store);
  ASSERT_EQ(list.skipped.size(), 1U);
  EXPECT_EQ(list.skipped[0].reason, absl::StrCat("ps-1.state has 100 bytes, expected ", bytes));
  system.FailAt(system.operations() + 3, EIO);
  EXPECT_TRUE(absl::IsUnavailable(ListCheckpoints(*store).status())) << "no answer is not damage";
}

TEST(CheckpointTest, TheNewestComesFirst) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  SampleJob job = MakeSampleJob(1, 9);
  ASSERT_TRUE(WriteSample(*store, job, 1).ok());
  job.identity.set_cut(10);
  ASSERT_TRUE(WriteSample(*store, job, 1).ok());
  job.identity.set_generation(10);
  ASSERT_TRUE(WriteSample(*store, job, 1).ok());
  job.identity.set_generation(9);
  job.identity.set_incarnation(11);
  ASSERT_TRUE(WriteSample(*store, job, 1).ok());
  EXPECT_THAT(Names(*store), ElementsAre("cut-0000000010-g10-i1-00112233", "cut-0000000010-g9-i11-00112233",
                                         "cut-0000000010-g1-i1-00112233", "cut-0000000009-g1-i1-00112233"));
}

// The heart of it. A machine stops in any operation of writing a checkpoint: it is listed and whole, or not listed, and
// the one before is as it was.
TEST(CheckpointTest, WhereverAMachineStopsACheckpointIsWholeOrNone) {
  int listed = 0;
  int absent = 0;
  for (std::uint64_t seed = 0; seed < Seeds(24); ++seed) {
    const SampleJob before = MakeSampleJob(seed, 1);
    const SampleJob job = MakeSampleJob(seed, 2);
    for (std::uint64_t operation = 0;; ++operation) {
      FakeFileSystem system(seed * 1000 + operation);
      const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
      ASSERT_TRUE(WriteSample(*store, before, 2).ok());
      const std::uint64_t at = system.operations() + operation;
      switch (seed % 3) {
        case 0:
          system.DieAt(at);
          break;
        case 1:
          system.FailAt(at, seed % 2 == 0 ? EIO : ENOSPC);
          break;
        default:
          system.LimitBytes(system.bytes_used() + operation * 97);
      }
      const absl::Status written = WriteSample(*store, job, 2);
      const bool reached = seed % 3 == 2 ? !written.ok() : system.operations() > at;
      if (seed % 5 == 0) {
        system.Restart();
      } else {
        system.Crash();
      }
      system.LimitBytes(std::nullopt);
      const std::string context = absl::StrCat("seed ", seed, " operation ", operation, ": ", written.ToString());
      EXPECT_EQ(CompareSample(*store, before), absl::OkStatus()) << context;
      EXPECT_EQ(Verify(*store, CheckpointName(before.identity)), absl::OkStatus()) << context;
      const std::vector<std::string> names = Names(*store);
      const bool is_listed = names.size() == 2;
      (is_listed ? listed : absent) += 1;
      EXPECT_TRUE(is_listed || !written.ok()) << context;
      if (is_listed) {
        EXPECT_EQ(Verify(*store, names[0]), absl::OkStatus()) << context;
        EXPECT_EQ(CompareSample(*store, job), absl::OkStatus()) << context;
      }
      // The next incarnation tidies up and goes on.
      EXPECT_TRUE(RemoveUnfinished(*store, kUid, 2).ok()) << context;
      ASSERT_TRUE(store->RemoveLeftovers("").ok()) << context;
      EXPECT_EQ(ListCheckpoints(*store)->skipped.size(), 0U) << context;
      EXPECT_EQ(system.Files().size(), is_listed ? 12U : 6U) << context;
      ASSERT_TRUE(WriteSample(*store, MakeSampleJob(seed, 3), 3).ok()) << context;
      if (!reached) break;
    }
  }
  EXPECT_GT(listed, 0);
  EXPECT_GT(absent, 0);
}

// A disk that says OK and keeps nothing can lose a checkpoint, and nobody can help it; but what it has instead is not
// taken for one.
TEST(CheckpointTest, ADiskThatLiesIsNotBelieved) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < Seeds(300); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    const SampleJob job = MakeSampleJob(seed);
    system.LieAboutSync(seed % 2 == 0 ? 0.3 : 0.05);
    ASSERT_TRUE(WriteSample(*store, job, 2).ok());
    system.Crash();
    const absl::Status verified = Verify(*store, kName);
    const absl::Status compared = CompareSample(*store, job);
    EXPECT_FALSE(absl::IsInternal(compared)) << "seed " << seed << ": " << compared;
    EXPECT_TRUE(compared.ok() || !verified.ok()) << "seed " << seed << ": " << compared;
    if (!verified.ok()) ++lost;
  }
  EXPECT_GT(lost, 0);
}

TEST(CheckpointTest, OfTwoWhoWriteOneCheckpointOneWins) {
  for (std::uint64_t seed = 0; seed < Seeds(20); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    const SampleJob job = MakeSampleJob(1, 1);
    SampleJob other = MakeSampleJob(2, 1);
    ASSERT_EQ(CheckpointName(job.identity), CheckpointName(other.identity));
    // The second writes all of its files while the first is in the middle of its own.
    std::optional<absl::StatusOr<v1::PsFiles>> second;
    const absl::StatusOr<v1::PsFiles> first = WritePsFiles(*store, SamplePart(job, 0, 1), [&](std::uint32_t slice) {
      if (slice == seed % 4) {
        second = WritePsFiles(*store, SamplePart(other, 0, 1), [&](std::uint32_t number) {
          return absl::StatusOr<core::SliceSnapshot>(other.slices[number]);
        });
      }
      return absl::StatusOr<core::SliceSnapshot>(job.slices[slice]);
    });
    EXPECT_TRUE(absl::IsAlreadyExists(first.status())) << first.status();
    ASSERT_TRUE(second.has_value() && second->ok());
    ASSERT_TRUE(WriteManifest(*store, *MakeManifest(other.identity, {**second})).ok());
    EXPECT_EQ(CompareSample(*store, other), absl::OkStatus());
    EXPECT_EQ(system.Files().size(), 3U);
  }
}

TEST(CheckpointTest, RetentionLeavesAloneWhatIsBeingWritten) {
  for (std::uint64_t seed = 0; seed < Seeds(40); ++seed) {
    FakeFileSystem system(seed);
    const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
    for (std::uint32_t cut = 1; cut <= 4; ++cut) ASSERT_TRUE(WriteSample(*store, MakeSampleJob(seed, cut), 1).ok());
    SampleJob job = MakeSampleJob(seed, 5);
    ASSERT_TRUE(ClaimCheckpoint(*store, job.identity).ok());
    const bool dies = seed % 2 == 0;
    const absl::StatusOr<v1::PsFiles> files = WritePsFiles(*store, SamplePart(job, 0, 1), [&](std::uint32_t slice) {
      if (slice == seed % 4) {
        for (const Removal& removal : ToRemove(ListCheckpoints(*store)->checkpoints, {kUid, 2, "", ""})) {
          if (dies && removal.name == CheckpointName(2, 1, 1, kUid)) continue;
          EXPECT_TRUE(Remove(*store, removal.name).ok());
        }
        EXPECT_TRUE(RemoveUnfinished(*store, kUid, 1)->empty()) << "this incarnation's own";
        EXPECT_TRUE(RemoveUnfinished(*store, "00112233000000000000000000000000", 9)->empty()) << "another job's";
      }
      return absl::StatusOr<core::SliceSnapshot>(job.slices[slice]);
    });
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_TRUE(WriteManifest(*store, *MakeManifest(job.identity, {*files})).ok());
    if (dies) {
      // A removal that is cut short leaves no checkpoint behind that is not whole.
      system.DieAt(system.operations() + seed / 2);
      Remove(*store, CheckpointName(2, 1, 1, kUid)).IgnoreError();
      system.Crash();
      for (const std::string& name : Names(*store)) EXPECT_EQ(Verify(*store, name), absl::OkStatus()) << name;
    }
    for (std::uint32_t cut = 3; cut <= 5; ++cut) {
      EXPECT_EQ(CompareSample(*store, MakeSampleJob(seed, cut)), absl::OkStatus());
    }
  }
}

TEST(CheckpointTest, LeftoversOfOlderIncarnationsGo) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  SampleJob job = MakeSampleJob(1);
  ASSERT_TRUE(WriteSample(*store, job, 1).ok());
  job.identity.set_cut(2);
  ASSERT_TRUE(ClaimCheckpoint(*store, job.identity).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(ClaimCheckpoint(*store, job.identity)));
  job.identity.set_incarnation(2);
  ASSERT_TRUE(ClaimCheckpoint(*store, job.identity).ok());
  job.identity.set_incarnation(1);
  job.identity.set_job_uid("00112233000000000000000000000000");
  job.identity.set_generation(2);
  ASSERT_TRUE(ClaimCheckpoint(*store, job.identity).ok());
  job.identity.set_job_uid("ff112233000000000000000000000000");
  ASSERT_TRUE(ClaimCheckpoint(*store, job.identity).ok());
  EXPECT_THAT(*RemoveUnfinished(*store, kUid, 2), ElementsAre("cut-0000000002-g1-i1-00112233"));
  EXPECT_THAT(*RemoveUnfinished(*store, kUid, 2), IsEmpty());
  EXPECT_EQ(ListCheckpoints(*store)->skipped.size(), 3U);
  EXPECT_EQ(Verify(*store, kName), absl::OkStatus());
}

TEST(CheckpointTest, RemovesOneAndNoOther) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  ASSERT_TRUE(WriteSample(*store, MakeSampleJob(1, 1), 1).ok());
  ASSERT_TRUE(WriteSample(*store, MakeSampleJob(1, 2), 1).ok());
  for (const char* name : {"", "..", "a/b", "cut-0000000002-g1-i1-00112233/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Remove(*store, name))) << name;
  }
  ASSERT_TRUE(Remove(*store, kName).ok());
  EXPECT_THAT(Names(*store), ElementsAre("cut-0000000002-g1-i1-00112233"));
  EXPECT_TRUE(Remove(*store, kName).ok());
  EXPECT_TRUE(absl::IsNotFound(Verify(*store, kName)));
}

// On this machine's disk, where Python can read it.
class RealCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/checkpoint-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    store_ = *OpenStore(folder_ + "/store");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(RealCheckpointTest, ExportsOneModelFile) {
  const SampleJob job = MakeSampleJob(1, 1, true);
  ASSERT_TRUE(WriteSample(*store_, job, 3).ok());
  EXPECT_EQ(Verify(*store_, kName), absl::OkStatus());
  const std::string path = folder_ + "/model.safetensors";
  const auto written = Export(*store_, kName, path);
  ASSERT_TRUE(written.ok()) << written.status();
  const absl::StatusOr<LoadedFile> model = ReadSafetensors(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->metadata.at("checkpoint"), kName);
  ASSERT_EQ(model->tensors.size(), 5U);
  std::map<std::string, std::vector<float>> expected;
  for (const core::SliceSnapshot& snapshot : job.slices) {
    auto& values = expected[job.identity.tensors(static_cast<int>(snapshot.slice.tensor)).name()];
    values.insert(values.end(), snapshot.value->begin(), snapshot.value->end());
  }
  for (const auto& [name, tensor] : model->tensors) EXPECT_EQ(tensor.values, expected.at(name)) << name;
  EXPECT_EQ(model->tensors.at("embedding.weight").shape, (std::vector<std::int64_t>{1025, 2048}));
  EXPECT_TRUE(absl::IsNotFound(Export(*store_, "cut-0000000009-g1-i1-00112233", path).status()));
}

// The values are checked without any package, and with safetensors where Python has it (DOWNPOUR_SAFETENSORS_PYTHON).
TEST_F(RealCheckpointTest, PythonReadsTheWeights) {
  const SampleJob job = MakeSampleJob(1, 1, true);
  ASSERT_TRUE(WriteSample(*store_, job, 1).ok());
  std::ofstream values(folder_ + "/expected", std::ios::binary);
  for (const core::SliceSnapshot& snapshot : job.slices) {
    values.write(reinterpret_cast<const char*>(snapshot.value->data()),
                 static_cast<std::streamsize>(snapshot.value->size() * sizeof(float)));
  }
  values.close();
  std::ofstream(folder_ + "/check.py") << R"(import json, struct, sys
raw = open(sys.argv[1], "rb").read()
expected = open(sys.argv[2], "rb").read()
(size,) = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8:8 + size])
assert header.pop("__metadata__") == {"format": "pt", "checkpoint": sys.argv[3], "ps": "0"}
shapes = {name: entry["shape"] for name, entry in header.items()}
assert shapes == {"conv.weight": [3, 2, 2], "conv.bias": [3], "norm.mean": [], "fc.weight": [4, 5],
                  "embedding.weight/0": [1048576], "embedding.weight/1048576": [1048576],
                  "embedding.weight/2097152": [2048]}, shapes
assert raw[8 + size:] == expected
try:
    from safetensors import safe_open
except ImportError:
    sys.exit(0)
with safe_open(sys.argv[1], framework="numpy") as file:
    assert {name: list(file.get_tensor(name).shape) for name in file.keys()} == shapes
    joined = b"".join(file.get_tensor(name).tobytes() for name in header)
    assert joined == expected
print("with safetensors")
)";
  const char* const python = std::getenv("DOWNPOUR_SAFETENSORS_PYTHON");
  const std::string command =
      absl::StrCat(python == nullptr ? "python3" : python, " '", folder_, "/check.py' '", folder_, "/store/", kName,
                   "/ps-0.safetensors' '", folder_, "/expected' ", kName);
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace downpour::checkpoint
