#include "trainer/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace downpour::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

// The number of bytes of `shape`, or nothing where it overflows.
bool ByteCount(const std::vector<std::int64_t>& shape, std::uint64_t* bytes) {
  return SafetensorsByteCount(shape, sizeof(float), bytes);
}

absl::Status SystemError(const std::string& path, const char* what, int error) {
  return checkpoint::SystemError(absl::StrCat(path, ": ", what), error);
}

// 0, or the errno of the failure.
int WriteAll(int descriptor, const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, from, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    from += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

// The file system does not have this at all: nothing was lost by asking.
bool IsAbsent(int error) { return error == EINVAL || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS; }

// 0, or the errno of the failure. A directory that may not be opened or synchronised is left to the file system.
int SyncDirectory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno == EACCES ? 0 : errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return IsAbsent(error) || error == EPERM ? 0 : error;
}

// Writers may be on several machines.
std::string RandomName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// Takes the bytes of a file one piece after another.
using Sink = std::function<absl::Status(absl::Span<const char>)>;

// `unsynced`: the errno with which the directory could not be synchronised, 0 if it was; the file is there all the
// same. `keep`: if it is whole and cannot be renamed, it stays under the name that the error says.
absl::Status WriteWhole(const std::string& path, const std::function<absl::Status(const Sink&)>& content, bool keep,
                        int* unsynced) {
  const std::string temporary = absl::StrCat(path, ".tmp-", RandomName());
  // With the mode that the umask leaves to any new file.
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(path, "cannot create", errno);
  bool open = true;
  absl::Cleanup discard = [&] {
    if (open) ::close(descriptor);
    ::unlink(temporary.c_str());
  };
  absl::Status produced = content([&](absl::Span<const char> piece) {
    const int error = WriteAll(descriptor, piece.data(), piece.size());
    return error == 0 ? absl::OkStatus() : SystemError(path, "cannot write", error);
  });
  if (!produced.ok()) return produced;
  if (::fsync(descriptor) != 0 && !IsAbsent(errno)) return SystemError(path, "cannot sync", errno);
  open = false;
  if (::close(descriptor) != 0) return SystemError(path, "cannot close", errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    absl::Status status = SystemError(path, "cannot rename", errno);
    if (!keep) return status;
    std::move(discard).Cancel();
    return absl::Status(status.code(), absl::StrCat(status.message(), "; the file is whole as ", temporary));
  }
  std::move(discard).Cancel();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  *unsynced = SyncDirectory(parent.empty() ? "." : parent);
  return absl::OkStatus();
}

template <typename Value>
absl::Span<const char> BytesOf(const Value* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(Value)};
}

}  // namespace

absl::StatusOr<std::string> EncodeSafetensorsHeader(const std::vector<TensorShape>& tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kSafetensorsMetadata] = metadata;
  std::set<std::string> names = {kSafetensorsMetadata};
  std::uint64_t offset = 0;
  for (const TensorShape& tensor : tensors) {
    std::uint64_t bytes = 0;
    if (!ByteCount(tensor.shape, &bytes) || __builtin_add_overflow(offset, bytes, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": [%s] is no shape", tensor.name, absl::StrJoin(tensor.shape, ", ")));
    }
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrFormat("tensor \"%s\": the name is taken", tensor.name));
    }
    // An object of nlohmann's that keeps its order looks through all of its members for each new one.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name,
        nlohmann::ordered_json{{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, bytes}}});
    offset = bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name or a metadata value is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeaderBytes) return absl::InvalidArgumentError("the header would exceed 100 MB");
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kSafetensorsLengthBytes) + text;
}

absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, const std::vector<TensorShape>& tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::function<absl::Status(const ValueSink&)>& values) {
  const absl::StatusOr<std::string> header = EncodeSafetensorsHeader(tensors, metadata);
  if (!header.ok()) {
    return absl::Status(header.status().code(), absl::StrCat(path, ": ", header.status().message()));
  }
  const auto content = [&](const Sink& sink) {
    if (absl::Status begun = sink(BytesOf(header->data(), header->size())); !begun.ok()) return begun;
    return values([&](absl::Span<const float> run) { return sink(BytesOf(run.data(), run.size())); });
  };
  int unsynced = 0;
  if (absl::Status written = WriteWhole(path, content, /*keep=*/true, &unsynced); !written.ok()) return written;
  if (unsynced == 0) return WrittenFile{};
  return WrittenFile{absl::StrCat(SystemError(path, "the directory cannot be synced", unsynced).message(),
                                  "; the file is whole, but may be lost if the machine stops now")};
}

absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                             const std::map<std::string, std::string>& metadata) {
  std::vector<TensorShape> shapes;
  for (const NamedTensor& tensor : tensors) {
    std::uint64_t bytes = 0;
    if (!ByteCount(tensor.shape, &bytes) || bytes != tensor.values.size() * sizeof(float)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: tensor \"%s\": %d values do not fill the shape [%s]", path,
                                                        tensor.name, tensor.values.size(),
                                                        absl::StrJoin(tensor.shape, ", ")));
    }
    shapes.push_back({tensor.name, tensor.shape});
  }
  return WriteSafetensors(path, shapes, metadata, [&](const ValueSink& sink) {
    absl::Status status;
    for (auto tensor = tensors.begin(); status.ok() && tensor != tensors.end(); ++tensor) status = sink(tensor->values);
    return status;
  });
}

absl::Status CheckWritable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a directory, expected a file or nothing"));
  }
  const std::string probe = absl::StrCat(path, ".probe-", RandomName());
  constexpr char kContent[] = "can this be written?\n";
  int unsynced = 0;
  absl::Status status = WriteWhole(
      probe, [&](const Sink& sink) { return sink(BytesOf(kContent, sizeof(kContent) - 1)); }, /*keep=*/false,
      &unsynced);
  if (status.ok()) ::unlink(probe.c_str());
  status = absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{probe, path}}));
  if (status.ok() && unsynced != 0) status = SystemError(path, "the directory cannot be synced", unsynced);
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsUnimplemented(status)
             ? absl::FailedPreconditionError(status.message())
             : status;
}

absl::Status CheckFinite(const std::vector<NamedTensor>& tensors) {
  std::size_t values = 0;
  std::size_t bad_values = 0;
  std::size_t bad_tensors = 0;
  std::string first;
  for (const NamedTensor& tensor : tensors) {
    const auto bad = static_cast<std::size_t>(
        std::count_if(tensor.values.begin(), tensor.values.end(), [](float value) { return !std::isfinite(value); }));
    values += tensor.values.size();
    bad_values += bad;
    if (bad == 0) continue;
    if (++bad_tensors == 1) first = absl::StrFormat("%s (%d of %d)", tensor.name, bad, tensor.values.size());
  }
  if (bad_values == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%d of %d values in %d of %d tensors are not finite, first in %s", bad_values, values,
                      bad_tensors, tensors.size(), first));
}

namespace {

absl::StatusOr<std::uint64_t> BytesOfDtype(const std::string& dtype) {
  if (dtype == "F32") return sizeof(float);
  return absl::UnimplementedError(absl::StrFormat("dtype %s, only F32 is supported", nlohmann::json(dtype).dump()));
}

}  // namespace

absl::StatusOr<LoadedFile> ParseSafetensors(absl::Span<const std::uint8_t> bytes) {
  if (bytes.size() < kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrFormat("%d bytes, too short for a safetensors file", bytes.size()));
  }
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), kSafetensorsLengthBytes);
  if (header_size > kMaxSafetensorsHeaderBytes || header_size > bytes.size() - kSafetensorsLengthBytes) {
    return absl::DataLossError(
        absl::StrFormat("bad header length %d in a safetensors file of %d bytes", header_size, bytes.size()));
  }
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(bytes.subspan(kSafetensorsLengthBytes, header_size),
                             bytes.size() - kSafetensorsLengthBytes - header_size, BytesOfDtype);
  if (!header.ok()) return header.status();
  LoadedFile file;
  file.metadata = std::move(header->metadata);
  for (TensorPlace& place : header->tensors) {
    LoadedTensor tensor{std::move(place.shape), std::vector<float>((place.end - place.begin) / sizeof(float))};
    if (!tensor.values.empty()) std::memcpy(tensor.values.data(), bytes.data() + place.begin, place.end - place.begin);
    file.tensors.emplace(std::move(place.name), std::move(tensor));
  }
  return file;
}

absl::StatusOr<LoadedFile> ReadSafetensors(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return SystemError(path, "cannot open", error.value());
  std::vector<std::uint8_t> bytes(size);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return SystemError(path, "cannot open", errno);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) return SystemError(path, "cannot read", errno);
  absl::StatusOr<LoadedFile> file = ParseSafetensors(bytes);
  if (!file.ok()) return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  return file;
}

}  // namespace downpour::checkpoint
