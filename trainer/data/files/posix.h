#ifndef DOWNPOUR_TRAINER_DATA_FILES_POSIX_H_
#define DOWNPOUR_TRAINER_DATA_FILES_POSIX_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

// What the files of this directory have in common. Thread-safe.
namespace downpour::data {

// "PATH: WHAT: " and what errno `error` means.
absl::Status SystemError(const std::string& path, const char* what, int error);

// Exactly bytes.size() bytes from `offset`. kDataLoss: the file ends before.
absl::Status ReadFully(const std::string& path, int descriptor, std::uint64_t offset, absl::Span<std::uint8_t> bytes);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_POSIX_H_
