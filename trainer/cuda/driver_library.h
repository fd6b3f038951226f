#ifndef DOWNPOUR_TRAINER_CUDA_DRIVER_LIBRARY_H_
#define DOWNPOUR_TRAINER_CUDA_DRIVER_LIBRARY_H_

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace downpour::cuda {

// A library of NVIDIA's driver, loaded when it is opened and never unloaded: no program is linked with one.
class DriverLibrary {
 public:
  // kFailedPrecondition: it cannot be loaded.
  static absl::StatusOr<DriverLibrary> Open(const std::string& file) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return DriverLibrary(file, library);
    const char* const error = dlerror();
    return absl::FailedPreconditionError(error != nullptr ? error : file);
  }

  // kFailedPrecondition, and null: it has none of that name.
  template <typename Function>
  absl::Status Find(const char* name, Function* function) const {
    void* const found = dlsym(library_, name);
    static_assert(sizeof(*function) == sizeof(found));
    std::memcpy(function, &found, sizeof(found));
    if (found != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(file_, " has no ", name));
  }

 private:
  DriverLibrary(const std::string& file, void* library) : file_(file), library_(library) {}
  std::string file_;
  void* library_;
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DRIVER_LIBRARY_H_
