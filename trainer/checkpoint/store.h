#ifndef DOWNPOUR_TRAINER_CHECKPOINT_STORE_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// Where checkpoints lie: whole files under names, created once and never changed. A name is one or more parts of
// letters, digits, '-', '_' and '.', joined by '/'; no part begins with a dot. Errors name the file and what the system
// or the server said. All of it is bounded in time.
namespace downpour::checkpoint {

// A file in the making. Nothing is under its name before Commit has returned OK; one that is destroyed without leaves
// at most what Store::RemoveLeftovers takes away.
class StoreWriter {
 public:
  virtual ~StoreWriter() = default;
  virtual absl::Status Append(absl::Span<const std::uint8_t> bytes) = 0;
  // The file is whole, durable and under its name. kAlreadyExists: something is there already, and stays as it was.
  // After an error: nothing, or, where the answer was lost, the whole file.
  virtual absl::Status Commit() = 0;
};

class StoreReader {
 public:
  virtual ~StoreReader() = default;
  virtual std::uint64_t size() const = 0;
  // Exactly bytes.size() bytes from `offset`. kOutOfRange: the file ends before; kDataLoss: it has become shorter.
  virtual absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) = 0;
};

struct StoredFile {
  std::string name;
  std::uint64_t bytes = 0;
};

// Thread-safe; writers and readers belong to one thread at a time and must not outlive their store.
class Store {
 public:
  virtual ~Store() = default;
  // As users write it: a path, or s3://BUCKET/PREFIX.
  virtual const std::string& uri() const = 0;
  // kAlreadyExists: something is under the name (told here or by Commit). kResourceExhausted: no room.
  virtual absl::StatusOr<std::unique_ptr<StoreWriter>> Create(const std::string& name) = 0;
  // kNotFound: there is none.
  virtual absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& name) = 0;
  // The files whose names begin with `prefix`, sorted by name; temporary ones are none. A store that is not there yet
  // is empty.
  virtual absl::StatusOr<std::vector<StoredFile>> List(const std::string& prefix) = 0;
  // OK also if there is none. Directories that become empty go too.
  virtual absl::Status Remove(const std::string& name) = 0;
  // Temporary files and unfinished uploads of names that begin with `prefix`.
  virtual absl::Status RemoveLeftovers(const std::string& prefix) = 0;
};

// kInvalidArgument: no name as they are described above.
absl::Status CheckStoreName(absl::string_view name);

// A directory (a path, absolute or relative; made when the first file is created) or s3://BUCKET/PREFIX. What S3 needs
// besides comes from the environment, as the AWS tools name it. kInvalidArgument: neither.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& uri);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_STORE_H_
