#ifndef DOWNPOUR_TRAINER_DATA_FILES_SHOWN_PATH_H_
#define DOWNPOUR_TRAINER_DATA_FILES_SHOWN_PATH_H_

#include <string>

namespace downpour::data {

// A path as it is where a data set was read from a URI: without its user, password and options, which may be secrets.
// "s3://ID:SECRET@bucket/a?region=b" becomes "s3://bucket/a"; of abfs:// the container stays. Other paths are as they
// are.
std::string ShownPath(const std::string& path);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_SHOWN_PATH_H_
