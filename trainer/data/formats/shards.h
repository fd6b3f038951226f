#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_SHARDS_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_SHARDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/data/files/files.h"

namespace downpour::data {

// The files of a data set that is cut into shards. `path` is a directory: those below it whose names `belongs` accepts,
// sorted by path, others being ignored; a path with a range, train-{0000..0009}.tar: these, each of which must be
// there; or a file. kNotFound: there are none, `expected` saying what was looked for; kInvalidArgument: a bad range.
absl::StatusOr<std::vector<std::string>> ListShards(const Files& files, const std::string& path,
                                                    const std::function<bool(absl::string_view name)>& belongs,
                                                    absl::string_view expected);

// Without a range the path itself.
absl::StatusOr<std::vector<std::string>> ExpandRange(const std::string& path);

// What is behind the last slash.
absl::string_view FileName(absl::string_view path);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_SHARDS_H_
