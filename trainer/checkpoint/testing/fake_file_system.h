#ifndef DOWNPOUR_TRAINER_CHECKPOINT_TESTING_FAKE_FILE_SYSTEM_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_TESTING_FAKE_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace downpour::checkpoint::testing {

// Files in memory, and what may happen to them. Everything follows from the seed and the order of the calls.
//
// What a machine keeps when it stops: of a file what was there at its last Sync, and of what came after it a prefix, or
// a prefix and then zeros; of a directory the names at its last SyncDirectory, and of the changes after it the first
// few.
//
// Not thread-safe. Must outlive its writers and readers.
class FakeFileSystem final : public FileSystem {
 public:
  explicit FakeFileSystem(std::uint64_t seed);

  // ---- what goes wrong
  // Room for so many bytes of files; beyond: ENOSPC, after as many bytes as fit.
  void LimitBytes(std::optional<std::uint64_t> bytes) { limit_ = bytes; }
  // The operation with this number, see operations(), fails with this errno, after a part of it if it is an Append.
  void FailAt(std::uint64_t operation, int error);
  // The process dies in the operation with this number, which is done or not, or in part; all later ones fail.
  void DieAt(std::uint64_t operation) { die_at_ = operation; }
  // The probability that Sync or SyncDirectory says OK and does nothing.
  void LieAboutSync(double probability) { lie_probability_ = probability; }

  // ---- and how it goes on, without any failure still to come. Writers and readers from before fail for ever; a
  // store's writers are destroyed before, or they would tidy up after the end of their process.
  void Restart();  // another process, on a machine that kept all
  void Crash();    // the machine stopped, with what it kept; another process

  // ---- inspection
  // How many there were: the number of the next one.
  std::uint64_t operations() const { return operations_; }
  std::uint64_t bytes_used() const;
  std::vector<std::string> Files() const;  // their paths, sorted
  // The content, to damage it; of a path in Files().
  std::string& Content(const std::string& path);
  // Behind the back of everything.
  void Erase(const std::string& path);

  absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& path) override;
  absl::Status RenameExclusive(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) override;
  std::string UniqueSuffix() override;

 private:
  class Writer;
  class Reader;
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  // A name that goes, one that comes, or both at once.
  struct Change {
    std::string removed;
    std::string added;
    NodePointer node;
  };
  struct Node {
    bool directory = false;
    std::string content;
    std::size_t synced = 0;  // bytes of it
    std::map<std::string, NodePointer> entries;
    std::map<std::string, NodePointer> synced_entries;
    std::vector<Change> changes;  // since
  };
  // What becomes of an operation: an error, done all the same or not.
  struct Fate {
    absl::Status status;
    bool done = true;
  };
  struct Place {
    NodePointer parent;
    std::string name;
  };

  Fate Next(const char* what);
  bool Lies();
  absl::StatusOr<Place> Find(const std::string& path, const char* what) const;
  absl::StatusOr<NodePointer> FindNode(const std::string& path, const char* what) const;
  static void Apply(Node& directory, const Change& change);
  void Settle(Node& directory);
  static std::uint64_t Bytes(const Node& node);

  std::mt19937_64 random_;
  NodePointer root_;
  std::uint64_t operations_ = 0;
  std::optional<std::uint64_t> limit_;
  std::map<std::uint64_t, int> failures_;
  std::optional<std::uint64_t> die_at_;
  double lie_probability_ = 0;
  bool dead_ = false;
  std::uint64_t process_ = 0;
};

}  // namespace downpour::checkpoint::testing

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_TESTING_FAKE_FILE_SYSTEM_H_
