#include "trainer/wire/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::wire {
namespace {

// Nobody can take memory away from under a mapping: neither its end, nor, as nobody but the first mapping may write, a
// hole in it. Reading it never ends in a signal.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
constexpr std::uint64_t kBackedAtATime = 1 << 20;

absl::Status SystemError(const char* what) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

// Gets memory for the first `end` bytes, of which `*backed` have it: where there is none, this says so; touching it
// would be a signal.
bool Back(int descriptor, std::uint64_t end, std::uint64_t bytes, std::uint64_t* backed) {
  if (end <= *backed) return true;
  const std::uint64_t until = std::min(bytes, (end + kBackedAtATime - 1) / kBackedAtATime * kBackedAtATime);
  int failed;
  do {
    failed = fallocate(descriptor, 0, static_cast<off_t>(*backed), static_cast<off_t>(until - *backed));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return false;
  *backed = until;
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnRegion>> OwnRegion::Create(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  bytes = (std::clamp(bytes, kLeastRegionBytes, kMostRegionBytes) + page - 1) / page * page;
  Descriptor descriptor(memfd_create("downpour-data", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return SystemError("memfd_create");
  if (ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) return SystemError("ftruncate");
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (memory == MAP_FAILED) return SystemError("mmap");
  std::unique_ptr<OwnRegion> region(new OwnRegion(std::move(descriptor), static_cast<std::uint8_t*>(memory), bytes));
  if (fcntl(region->descriptor(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return SystemError("F_ADD_SEALS");
  return region;
}

OwnRegion::OwnRegion(Descriptor descriptor, std::uint8_t* memory, std::uint64_t bytes)
    : descriptor_(std::move(descriptor)), memory_(memory), bytes_(bytes), space_(bytes) {}

OwnRegion::~OwnRegion() { munmap(memory_, bytes_); }

std::optional<std::uint64_t> OwnRegion::Take(std::uint64_t bytes) {
  const std::optional<std::uint64_t> offset = space_.Take(bytes);
  if (!offset.has_value() || Back(descriptor_.get(), *offset + bytes, bytes_, &backed_)) return offset;
  space_.GiveBack(*offset);
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<PeerRegion>> PeerRegion::Map(Descriptor descriptor, std::uint64_t bytes) {
  struct stat facts {};
  if (fstat(descriptor.get(), &facts) != 0) return SystemError("fstat");
  if (bytes < kLeastRegionBytes || bytes > kMostRegionBytes || static_cast<std::uint64_t>(facts.st_size) != bytes) {
    return absl::DataLossError(absl::StrCat("shared memory: found ", facts.st_size, " bytes, expected ", bytes, ", ",
                                            kLeastRegionBytes, " to ", kMostRegionBytes));
  }
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::DataLossError(absl::StrCat("shared memory: found seals ", seals, ", expected ", kSeals));
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (memory == MAP_FAILED) return SystemError("mmap");
  return std::shared_ptr<PeerRegion>(
      new PeerRegion(std::move(descriptor), static_cast<const std::uint8_t*>(memory), bytes));
}

PeerRegion::PeerRegion(Descriptor descriptor, const std::uint8_t* memory, std::uint64_t bytes)
    : descriptor_(std::move(descriptor)), memory_(memory), bytes_(bytes) {}

PeerRegion::~PeerRegion() { munmap(const_cast<std::uint8_t*>(memory_), bytes_); }

absl::StatusOr<absl::Span<const std::uint8_t>> PeerRegion::Bytes(std::uint64_t offset, std::uint64_t length) {
  if (offset > bytes_ || length > bytes_ - offset) {
    return absl::DataLossError(
        absl::StrCat("shared memory: found ", length, " bytes at ", offset, " in a region of ", bytes_));
  }
  // Where the peer wrote there is memory; where it only says that it did there may be none.
  if (!Back(descriptor_.get(), offset + length, bytes_, &backed_)) return SystemError("fallocate");
  return absl::Span<const std::uint8_t>(memory_ + offset, length);
}

}  // namespace downpour::wire
