#ifndef DOWNPOUR_TRAINER_DATA_INDEX_FILE_H_
#define DOWNPOUR_TRAINER_DATA_INDEX_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"

// Where the samples of a format lie that can only be read from the beginning: found once, and then looked up. The
// format of the file is in docs/formats.md.
namespace downpour::data {

struct IndexEntry {
  std::uint32_t file = 0;  // number in the list of paths
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};

// Takes the samples while an index is built.
class IndexBuilder {
 public:
  virtual ~IndexBuilder() = default;
  // In the order of the samples; file numbers do not fall. kInternal: they do, or the file has not so many bytes.
  virtual absl::Status Add(const IndexEntry& entry) = 0;
  // What else the pass over the files has found, at most 1 GiB of it: kept with the index.
  virtual void SetNotes(std::string notes) = 0;
};

// An index on the disk, mapped into memory: of a large one only the pages that are touched take room. Thread-safe.
class IndexFile {
 public:
  ~IndexFile();
  IndexFile(IndexFile&& other) noexcept;
  IndexFile& operator=(IndexFile&&) = delete;

  std::int64_t size() const { return static_cast<std::int64_t>(entries_); }
  // `index` is in [0, size()). The entry lies within its file as files() has it.
  IndexEntry entry(std::int64_t index) const;
  // Number of the first entry that is of `file` or of a later one; `file` is in [0, files().size()].
  std::int64_t first(std::uint32_t file) const { return static_cast<std::int64_t>(first_[file]); }
  // In the order of the paths, as they were when this was opened.
  const std::vector<FileInfo>& files() const { return files_; }
  const std::string& notes() const { return notes_; }
  // It was there already.
  bool reused() const { return reused_; }

 private:
  friend class IndexStore;
  IndexFile() = default;

  const unsigned char* mapped_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  std::uint64_t entries_ = 0;
  std::vector<std::uint64_t> first_;  // one a file, then entries_
  std::vector<FileInfo> files_;
  std::string notes_;
  bool reused_ = false;
};

// The index of the files `paths`, in this order. `format` says what it is an index of, with all that decides its
// entries and notes: "csv 1, delimiter ;". One that lies in `cache_directory` is used if it is sound, of this format
// and of these paths, and if each file has the size, the time of its last change and the first and last 64 KiB that it
// had; else `build` makes one, which takes its place there. Of processes that make one in a directory at the same time
// all but one wait, and use what it made. A process that uses an old one goes on with it.
// `cache_directory` is made if it is not there, and belongs to Downpour: files in it are never changed, only replaced.
// Empty: the index is kept in a temporary file without a name. Errors are those of the files, of `build`, and of
// writing the index, which name its file.
absl::StatusOr<IndexFile> OpenOrBuild(const Files& files, const std::vector<std::string>& paths,
                                      const std::string& format, const std::string& cache_directory,
                                      const std::function<absl::Status(IndexBuilder&)>& build);

// Where OpenOrBuild keeps it.
std::string IndexPath(const std::vector<std::string>& paths, const std::string& format,
                      const std::string& cache_directory);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_INDEX_FILE_H_
