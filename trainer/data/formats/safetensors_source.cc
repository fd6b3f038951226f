#include "trainer/data/formats/safetensors_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/data/formats/array_source.h"

namespace downpour::data {
namespace {

using checkpoint::kMaxSafetensorsHeaderBytes;
using checkpoint::kSafetensorsLengthBytes;
using checkpoint::SafetensorsHeader;
using checkpoint::TensorPlace;

const std::map<std::string, StoredType>& Types() {
  static const auto* const types = new std::map<std::string, StoredType>{
      {"BOOL", StoredType::kBool}, {"U8", StoredType::kU8},   {"I8", StoredType::kI8},     {"U16", StoredType::kU16},
      {"I16", StoredType::kI16},   {"U32", StoredType::kU32}, {"I32", StoredType::kI32},   {"U64", StoredType::kU64},
      {"I64", StoredType::kI64},   {"F16", StoredType::kF16}, {"BF16", StoredType::kBF16}, {"F32", StoredType::kF32},
      {"F64", StoredType::kF64}};
  return *types;
}

absl::StatusOr<std::uint64_t> BytesOfDtype(const std::string& dtype) {
  if (const auto type = Types().find(dtype); type != Types().end()) return BytesOf(type->second);
  return absl::UnimplementedError(absl::StrFormat(
      "found the dtype \"%s\", expected one of %s", dtype,
      absl::StrJoin(Types(), ", ", [](std::string* text, const auto& type) { text->append(type.first); })));
}

absl::StatusOr<SafetensorsHeader> ReadHeader(const RandomAccessFile& file) {
  const FileInfo& info = file.info();
  if (info.bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(
        absl::StrFormat("%s: found %d bytes, too few for a safetensors file, expected more", info.path, info.bytes));
  }
  std::uint8_t length_bytes[kSafetensorsLengthBytes];
  if (absl::Status read = file.ReadAt(0, absl::MakeSpan(length_bytes)); !read.ok()) return read;
  std::uint64_t length = 0;
  std::memcpy(&length, length_bytes, sizeof(length));
  const std::uint64_t most = std::min(kMaxSafetensorsHeaderBytes, info.bytes - kSafetensorsLengthBytes);
  if (length > most) {
    return absl::DataLossError(
        absl::StrFormat("%s: found a header of %d bytes, expected no more than %d", info.path, length, most));
  }
  std::vector<std::uint8_t> text(length);
  if (absl::Status read = file.ReadAt(kSafetensorsLengthBytes, absl::MakeSpan(text)); !read.ok()) return read;
  absl::StatusOr<SafetensorsHeader> header =
      checkpoint::ParseSafetensorsHeader(text, info.bytes - kSafetensorsLengthBytes - length, BytesOfDtype);
  if (!header.ok()) {
    return absl::Status(header.status().code(), absl::StrCat(info.path, ": ", header.status().message()));
  }
  return header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenSafetensors(const Files& files, const std::string& path,
                                                              const SafetensorsOptions& options) {
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files.Open(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<SafetensorsHeader> header = ReadHeader(**file);
  if (!header.ok()) return header.status();
  std::vector<StoredArray> arrays;
  const auto add = [&](const TensorPlace& tensor) {
    arrays.push_back({tensor.name, absl::StrFormat("%s: tensor \"%s\"", path, tensor.name), Types().at(tensor.dtype),
                      /*big_endian=*/false, tensor.shape, *file, tensor.begin});
  };
  for (const std::string& name : options.tensors) {
    const auto tensor = std::find_if(header->tensors.begin(), header->tensors.end(),
                                     [&name](const TensorPlace& place) { return place.name == name; });
    if (tensor == header->tensors.end()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: found no tensor \"%s\", expected one of %s", path, name,
          absl::StrJoin(header->tensors, ", ",
                        [](std::string* text, const TensorPlace& place) { text->append(place.name); })));
    }
    add(*tensor);
  }
  if (options.tensors.empty()) {
    for (const TensorPlace& tensor : header->tensors) add(tensor);
  }
  return MakeArraySource(path, std::move(arrays));
}

}  // namespace downpour::data
