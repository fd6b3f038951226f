#ifndef DOWNPOUR_TRAINER_DATA_FILES_OPEN_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_OPEN_FILES_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/data/files/files.h"

namespace downpour::data {

// The files of a data set by number, of which the last few that were asked for are kept open: there may be more than a
// process may open. Thread-safe. Must not outlive `files`.
class OpenFiles {
 public:
  OpenFiles(const Files& files, std::vector<FileInfo> infos, std::size_t most = 64);

  const std::vector<FileInfo>& infos() const { return infos_; }
  // kDataLoss: size or time are others than those of infos().
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(std::size_t number) const;

 private:
  using Newest = std::list<std::pair<std::size_t, std::shared_ptr<const RandomAccessFile>>>;

  const Files& files_;
  const std::vector<FileInfo> infos_;
  const std::size_t most_;
  mutable std::mutex mutex_;
  mutable Newest newest_;                                                // guarded by mutex_
  mutable std::unordered_map<std::size_t, Newest::iterator> by_number_;  // guarded by mutex_
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_OPEN_FILES_H_
