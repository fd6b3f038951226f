#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_SHARED_DIRECTORY_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_SHARED_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace downpour::wire {

// A directory for sockets, whose path is short.
class SharedDirectory {
 public:
  SharedDirectory() {
    char path[] = "/tmp/downpour-XXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  ~SharedDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_SHARED_DIRECTORY_H_
