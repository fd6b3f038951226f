#include "trainer/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace downpour::checkpoint {
namespace {

// Names are printed as a JSON string: they may hold anything.
std::string Quoted(const std::string& name) { return nlohmann::json(name).dump(); }

absl::StatusOr<std::vector<std::int64_t>> ParseShape(const std::string& name, const nlohmann::json& entry) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    return absl::DataLossError(absl::StrFormat("tensor %s: no shape, expected its extents", Quoted(name)));
  }
  std::vector<std::int64_t> extents;
  for (const nlohmann::json& extent : *shape) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
      return absl::DataLossError(absl::StrFormat("tensor %s: bad shape, expected its extents", Quoted(name)));
    }
    extents.push_back(extent.get<std::int64_t>());
  }
  return extents;
}

}  // namespace

bool SafetensorsByteCount(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes, std::uint64_t* bytes) {
  std::uint64_t product = element_bytes;
  for (std::int64_t extent : shape) {
    if (extent < 0) return false;
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product)) return false;
  }
  *bytes = product;
  return true;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::Span<const std::uint8_t> text, std::uint64_t data_bytes,
    const std::function<absl::StatusOr<std::uint64_t>(const std::string& dtype)>& bytes_of_dtype) {
  // Duplicate keys would be lost silently in the parsed document, so they are watched for; what is nested deeper than
  // {name: {field: [..]}} is not kept.
  constexpr int kMaxDepth = 3;
  std::set<std::string> names;
  bool duplicate = false;
  bool deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::key && depth == 1) duplicate = !names.insert(parsed.get<std::string>()).second || duplicate;
    if ((event == Event::array_start || event == Event::object_start) && depth >= kMaxDepth) deep = true;
    return !deep;
  };
  const nlohmann::json header = nlohmann::json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (text.empty() || text[0] != '{' || deep || !header.is_object()) {
    return absl::DataLossError("the safetensors header is not a JSON object, expected one of tensors");
  }
  if (duplicate)
    return absl::DataLossError("a name appears twice in the safetensors header, expected names that differ");

  SafetensorsHeader file;
  const std::uint64_t data_begin = kSafetensorsLengthBytes + text.size();
  for (const auto& [name, entry] : header.items()) {
    if (!entry.is_object())
      return absl::DataLossError(absl::StrFormat("%s is not an object, expected a tensor", Quoted(name)));
    if (name == kSafetensorsMetadata) {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string())
          return absl::DataLossError(absl::StrFormat("metadata %s is not a string, expected one", Quoted(key)));
        file.metadata.emplace(key, value.get<std::string>());
      }
      continue;
    }
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string()) {
      return absl::DataLossError(absl::StrFormat("tensor %s: no dtype, expected one", Quoted(name)));
    }
    const absl::StatusOr<std::uint64_t> element_bytes = bytes_of_dtype(dtype->get<std::string>());
    if (!element_bytes.ok()) {
      return absl::Status(element_bytes.status().code(),
                          absl::StrFormat("tensor %s: %s", Quoted(name), element_bytes.status().message()));
    }
    absl::StatusOr<std::vector<std::int64_t>> shape = ParseShape(name, entry);
    if (!shape.ok()) return shape.status();
    const auto offsets = entry.find("data_offsets");
    if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned()) {
      return absl::DataLossError(absl::StrFormat("tensor %s: bad data_offsets, expected [begin, end]", Quoted(name)));
    }
    const auto begin = (*offsets)[0].get<std::uint64_t>();
    const auto end = (*offsets)[1].get<std::uint64_t>();
    std::uint64_t size = 0;
    if (!SafetensorsByteCount(*shape, *element_bytes, &size) || begin > end || end > data_bytes ||
        end - begin != size) {
      return absl::DataLossError(
          absl::StrFormat("tensor %s: data_offsets [%d, %d] do not fit the shape [%s] in %d bytes of data",
                          Quoted(name), begin, end, absl::StrJoin(*shape, ", "), data_bytes));
    }
    file.tensors.push_back({name, dtype->get<std::string>(), *std::move(shape), begin, end});
  }
  std::sort(file.tensors.begin(), file.tensors.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t position = 0;
  for (TensorPlace& tensor : file.tensors) {
    if (tensor.begin != position) {
      return absl::DataLossError(absl::StrFormat("tensor %s: data begins at %d, expected %d: a hole or an overlap",
                                                 Quoted(tensor.name), tensor.begin, position));
    }
    position = tensor.end;
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (position != data_bytes) {
    return absl::DataLossError(
        absl::StrFormat("%d bytes of data belong to no tensor, expected none", data_bytes - position));
  }
  return file;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(
    std::istream& stream, std::uint64_t bytes,
    const std::function<absl::StatusOr<std::uint64_t>(const std::string& dtype)>& bytes_of_dtype,
    std::vector<std::uint8_t>* read) {
  if (bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrFormat("%d bytes, too short for a safetensors file", bytes));
  }
  std::vector<std::uint8_t> begin(kSafetensorsLengthBytes);
  const auto fill = [&stream, &begin](std::size_t from) {
    stream.read(reinterpret_cast<char*>(begin.data() + from), static_cast<std::streamsize>(begin.size() - from));
    return stream ? absl::OkStatus() : absl::UnavailableError("cannot read");
  };
  if (absl::Status filled = fill(0); !filled.ok()) return filled;
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  const std::uint64_t most = std::min(kMaxSafetensorsHeaderBytes, bytes - kSafetensorsLengthBytes);
  if (length > most) {
    return absl::DataLossError(
        absl::StrFormat("no safetensors file: a header of %d bytes, expected at most %d", length, most));
  }
  begin.resize(kSafetensorsLengthBytes + length);
  if (absl::Status filled = fill(kSafetensorsLengthBytes); !filled.ok()) return filled;
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(
      absl::MakeConstSpan(begin).subspan(kSafetensorsLengthBytes), bytes - begin.size(), bytes_of_dtype);
  if (read != nullptr) *read = std::move(begin);
  return header;
}

}  // namespace downpour::checkpoint
