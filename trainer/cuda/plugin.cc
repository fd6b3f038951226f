#include "trainer/cuda/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace downpour::cuda {
namespace {

constexpr char kFile[] = "libdownpour_cuda.so";

std::string LoaderError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// Of the loaded library: only its table's first two numbers are looked at before these are known to be right.
absl::StatusOr<const PluginTable*> TableOf(const std::string& path, void* library) {
  void* const symbol = dlsym(library, kPluginSymbol);
  if (symbol == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no library of Downpour's kernels: it has no symbol ", kPluginSymbol));
  }
  const PluginTable* const table = reinterpret_cast<PluginSymbol>(symbol)();
  if (table == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no library of Downpour's kernels: ", kPluginSymbol, " gives no table"));
  }
  if (table->version != kPluginVersion || table->size != sizeof(PluginTable)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has kernels of version ", table->version, " (a table of ", table->size, " bytes), expected version ",
        kPluginVersion, " (", sizeof(PluginTable), " bytes): it comes from another build of Downpour"));
  }
  return table;
}

}  // namespace

std::string PluginPath() {
  if (const char* chosen = std::getenv("DOWNPOUR_CUDA_PLUGIN"); chosen != nullptr) return chosen;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path beside = folder / kFile;
  if (std::filesystem::exists(beside, error)) return beside;
  return folder.parent_path() / "lib" / kFile;
}

absl::StatusOr<const PluginTable*> LoadPlugin(const std::string& path) {
  std::error_code error;
  // A name without a slash would be looked for where the system has its libraries.
  const std::filesystem::path file = std::filesystem::absolute(path, error);
  if (error || !std::filesystem::exists(file, error)) {
    return absl::NotFoundError(absl::StrCat("no library of kernels for GPUs: there is no file ", path));
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernels for GPUs in ", path, " cannot be loaded: ", LoaderError()));
  }
  absl::StatusOr<const PluginTable*> table = TableOf(path, library);
  if (!table.ok()) dlclose(library);
  return table;
}

absl::Status CheckDevices(const PluginTable& table) {
  int count = 0;
  const int error = table.count_devices(&count);
  if (error == 0 && count > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no CUDA device can be used: ", error == 0 ? "CUDA finds none" : table.error_text(error)));
}

absl::Status StatusOf(const PluginTable& table, int error, const char* doing) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(doing, " on a GPU: ", table.error_text(error), " (CUDA error ", error, ")"));
}

}  // namespace downpour::cuda
