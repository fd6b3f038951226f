#include "trainer/checkpoint/initial_weights.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/checkpoint/half_float.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/wire/crc32c.h"

namespace downpour::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in memory");

constexpr std::size_t kNamesTold = 10;

std::uint64_t ElementBytes(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

absl::StatusOr<std::uint64_t> BytesOfDtype(const std::string& dtype) {
  if (const std::uint64_t bytes = ElementBytes(dtype); bytes > 0) return bytes;
  return absl::InvalidArgumentError(
      absl::StrFormat("found the dtype \"%s\", expected one of F32, F16, BF16, F64", dtype));
}

bool IsInteger(const std::string& dtype) { return dtype == "I64" || dtype == "I32"; }

template <typename Value>
Value Load(const std::uint8_t* from) {
  Value value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float ToFloat(const std::string& dtype, const std::uint8_t* from) {
  if (dtype == "F32") return Load<float>(from);
  if (dtype == "F16") return HalfToFloat(Load<std::uint16_t>(from));
  if (dtype == "BF16") return std::bit_cast<float>(static_cast<std::uint32_t>(Load<std::uint16_t>(from)) << 16);
  if (dtype == "F64") return static_cast<float>(Load<double>(from));
  if (dtype == "I64") return static_cast<float>(Load<std::int64_t>(from));
  return static_cast<float>(Load<std::int32_t>(from));
}

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status Refuse(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

// A file whose header is read; the stream is where the values begin.
struct OpenFile {
  std::ifstream stream;
  SafetensorsHeader header;
  std::uint32_t crc32c = 0;  // of what was read so far
};

absl::StatusOr<OpenFile> Open(const std::string& path) {
  OpenFile file;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot open"));
  file.stream.open(path, std::ios::binary);
  if (!file.stream) return SystemError(path, "cannot open");
  std::vector<std::uint8_t> begin;
  absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(file.stream, size, BytesOfDtype, &begin);
  if (!file.stream) return SystemError(path, "cannot read");
  if (!header.ok()) return Refuse(path, std::string(header.status().message()));
  file.crc32c = wire::Crc32c(begin);
  file.header = *std::move(header);
  return file;
}

std::string FirstNames(const std::vector<std::string>& names) {
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesTold));
  return absl::StrCat(absl::StrJoin(names.begin(), end, ", "), names.size() > kNamesTold ? ", ..." : "");
}

std::string Text(const std::vector<std::int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace

std::string NameDifference(const InitialWeights& weights) {
  std::vector<std::string> parts;
  const auto tell = [&parts](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) parts.push_back(absl::StrFormat("%d %s (%s)", names.size(), what, FirstNames(names)));
  };
  tell("missing", weights.missing);
  tell("unexpected", weights.unexpected);
  return absl::StrJoin(parts, ", ");
}

absl::Status CheckInitialWeights(const std::string& path) { return Open(path).status(); }

absl::StatusOr<InitialWeights> ReadInitialWeights(const std::string& path, absl::Span<const WantedTensor> wanted,
                                                  bool strict) {
  absl::StatusOr<OpenFile> file = Open(path);
  if (!file.ok()) return file.status();
  std::map<std::string, const WantedTensor*> by_name;
  for (const WantedTensor& one : wanted) by_name.emplace(one.name, &one);
  InitialWeights weights;
  std::map<std::string, const TensorPlace*> found;
  for (const TensorPlace& place : file->header.tensors) {
    found.emplace(place.name, &place);
    const auto named = by_name.find(place.name);
    if (named == by_name.end()) {
      weights.unexpected.push_back(place.name);
      continue;
    }
    const WantedTensor& want = *named->second;
    if (place.shape != want.shape) {
      return Refuse(path, absl::StrFormat("tensor \"%s\": found the shape %s, expected %s", place.name,
                                          Text(place.shape), Text(want.shape)));
    }
    if (IsInteger(place.dtype) && !want.may_be_integer) {
      return Refuse(path, absl::StrFormat("tensor \"%s\": found the dtype \"%s\", expected one of F32, F16, BF16, F64",
                                          place.name, place.dtype));
    }
  }
  for (const WantedTensor& one : wanted) {
    if (found.count(one.name) == 0) weights.missing.push_back(one.name);
  }
  if (const std::string names = NameDifference(weights); strict && !names.empty()) {
    return Refuse(path, absl::StrCat("the names are not those of the model: ", names,
                                     "; spec.model.initialWeights.strict: false allows that"));
  }
  std::vector<std::uint8_t> bytes;
  for (const TensorPlace& place : file->header.tensors) {  // which cover the rest of the file
    bytes.resize(place.end - place.begin);
    file->stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file->stream) return SystemError(path, "cannot read");
    file->crc32c = wire::Crc32c(bytes, file->crc32c);
    if (by_name.count(place.name) == 0) continue;
    const std::uint64_t element = ElementBytes(place.dtype);
    std::vector<float>& values = weights.values[place.name];
    values.resize(bytes.size() / element);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = ToFloat(place.dtype, bytes.data() + i * element);
      if (std::isfinite(values[i])) continue;
      return Refuse(path, absl::StrFormat("tensor \"%s\": element %d is not finite as float32", place.name, i));
    }
  }
  weights.crc32c = file->crc32c;
  return weights;
}

}  // namespace downpour::checkpoint
