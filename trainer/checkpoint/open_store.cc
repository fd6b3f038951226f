#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/s3_store.h"
#include "trainer/checkpoint/store.h"

namespace downpour::checkpoint {

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& uri) {
  if (absl::StartsWith(uri, "s3://")) return OpenS3Store(uri);
  if (uri.empty() || absl::StrContains(uri, "://") || absl::StrContains(uri, '\0')) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(uri), "\": must be a path or s3://BUCKET/PREFIX"));
  }
  return MakeDirectoryStore(PosixFileSystem(), uri);
}

}  // namespace downpour::checkpoint
