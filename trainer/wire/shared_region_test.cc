#include "trainer/wire/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace downpour::wire {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

Descriptor Memory(off_t bytes, int seals) {
  Descriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), bytes), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

TEST(SharedRegionTest, OneWritesAndTheOtherReadsTheSameMemory) {
  const auto own = OwnRegion::Create(kBytes);
  ASSERT_TRUE(own.ok()) << own.status();
  const auto peer = PeerRegion::Map(Descriptor(dup((*own)->descriptor())), (*own)->bytes());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto offset = (*own)->Take(1000);
  ASSERT_TRUE(offset.has_value());
  std::memset((*own)->At(*offset), 7, 1000);
  const auto bytes = (*peer)->Bytes(*offset, 1000);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->back(), 7);
  (*own)->At(*offset)[999] = 8;
  EXPECT_EQ(bytes->back(), 8);
}

TEST(SharedRegionTest, WhoGetsTheDescriptorCanNeitherWriteNorTakeMemoryAway) {
  const auto own = OwnRegion::Create(kBytes);
  ASSERT_TRUE(own.ok()) << own.status();
  const int descriptor = (*own)->descriptor();
  EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
  EXPECT_LT(pwrite(descriptor, "x", 1, 0), 0);
  EXPECT_NE(ftruncate(descriptor, 0), 0);
  EXPECT_NE(ftruncate(descriptor, 2 * kBytes), 0);
  EXPECT_NE(fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
}

TEST(SharedRegionTest, RefusesWhatIsNotSealedOrHasAnotherSize) {
  EXPECT_TRUE(PeerRegion::Map(Memory(kBytes, kAllSeals), kBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(kBytes, kAllSeals), 2 * kBytes).status()));
  EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(kBytes, kAllSeals), kBytes / 2).status()));
  EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(0, kAllSeals), 0).status()));
  EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(100, kAllSeals), 100).status()));
  EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(off_t{1} << 40, kAllSeals), 1ULL << 40).status()));
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE}) {
    EXPECT_TRUE(absl::IsDataLoss(PeerRegion::Map(Memory(kBytes, kAllSeals & ~seal), kBytes).status())) << seal;
  }
  EXPECT_FALSE(PeerRegion::Map(Descriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)), kBytes).ok());
  EXPECT_FALSE(PeerRegion::Map(Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), 0).ok());
}

TEST(SharedRegionTest, OnlyBytesInsideAreGivenOut) {
  const auto peer = PeerRegion::Map(Memory(kBytes, kAllSeals), kBytes);
  ASSERT_TRUE(peer.ok()) << peer.status();
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE((*peer)->Bytes(0, kBytes).ok());
  EXPECT_TRUE((*peer)->Bytes(kBytes, 0).ok());
  for (const auto& [offset, length] : {std::pair<std::uint64_t, std::uint64_t>{0, kBytes + 1},
                                       {1, kBytes},
                                       {kBytes, 1},
                                       {kBytes + 1, 0},
                                       {kMost, 1},
                                       {kMost, kMost},
                                       {1, kMost},
                                       {kBytes - 1, kMost}}) {
    EXPECT_TRUE(absl::IsDataLoss((*peer)->Bytes(offset, length).status())) << offset << " " << length;
  }
}

// Memory that the peer says it wrote, and did not: it is there, and zero.
TEST(SharedRegionTest, WhatWasNeverWrittenCanBeRead) {
  const auto peer = PeerRegion::Map(Memory(kBytes, kAllSeals), kBytes);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto bytes = (*peer)->Bytes(0, kBytes);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const std::uint8_t byte : *bytes) ASSERT_EQ(byte, 0);
}

// A descriptor that the peer opened for reading alone: no memory can be had through it, and that is an error.
TEST(SharedRegionTest, ADescriptorThatGetsNoMemoryIsAnError) {
  const Descriptor memory = Memory(kBytes, kAllSeals);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  Descriptor reading(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reading.valid()) << std::strerror(errno);
  const auto peer = PeerRegion::Map(std::move(reading), kBytes);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE(absl::IsUnavailable((*peer)->Bytes(0, 1).status()));
}

TEST(SharedRegionTest, MemoryIsUsedAsFarAsItIsTaken) {
  const auto own = OwnRegion::Create(64 << 20);
  ASSERT_TRUE(own.ok()) << own.status();
  const auto used = [&] {
    struct stat facts {};
    EXPECT_EQ(fstat((*own)->descriptor(), &facts), 0);
    return facts.st_blocks * 512;
  };
  EXPECT_EQ(used(), 0);
  for (int i = 0; i < 20; ++i) {
    const auto offset = (*own)->Take(3 << 20);
    ASSERT_TRUE(offset.has_value());
    (*own)->GiveBack(*offset);
  }
  EXPECT_EQ(used(), 3 << 20);
}

}  // namespace
}  // namespace downpour::wire
