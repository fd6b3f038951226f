#include "trainer/data/formats/tf_record.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensorflow_example.pb.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/formats/read_ahead.h"
#include "trainer/data/formats/shards.h"
#include "trainer/data/formats/text_value.h"
#include "trainer/data/index_file.h"
#include "trainer/wire/tf_record.h"

namespace downpour::data {
namespace {

using Bytes = absl::Span<const std::uint8_t>;
using Kind = TfRecordFeature::Kind;
using tensorflow::Example;
using tensorflow::Feature;

// A record is its length and its checksum, the data and their checksum: trainer/wire/tf_record.h.
constexpr std::uint64_t kBefore = 12;
constexpr std::uint64_t kAfter = 4;
constexpr std::uint64_t kMostDataBytes = INT_MAX;  // protobuf takes no more

template <typename Number>
Number Load(const std::uint8_t* from) {
  Number number = 0;
  std::memcpy(&number, from, sizeof(number));
  return number;
}

// Where a record is: what every error begins with.
struct Place {
  const std::string& path;
  std::int64_t record;
  std::uint64_t offset;
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrFormat("%s: record %d at byte %d: %s", path, record, offset, what));
  }
};

absl::Status CheckChecksum(const Place& place, const char* of, Bytes bytes, const std::uint8_t* stored) {
  const auto found = Load<std::uint32_t>(stored);
  const std::uint32_t expected = wire::MaskedCrc32c(bytes);
  if (found == expected) return absl::OkStatus();
  return place.Error(absl::StrFormat("checksum of its %s: found %08x, expected %08x", of, found, expected));
}

absl::Status BuildIndex(const Files& files, const std::vector<std::string>& paths, IndexBuilder& builder) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto file = files.Open(paths[i]);
    if (!file.ok()) return file.status();
    ReadAhead ahead(**file, (*file)->info().bytes);
    Place place{paths[i], 0, 0};
    for (; place.offset < ahead.end(); ++place.record) {
      const std::uint64_t left = ahead.end() - place.offset;
      if (left < kBefore) {
        return place.Error(absl::StrFormat("the file ends after %d bytes, expected the %d of a length and its checksum",
                                           left, kBefore));
      }
      const auto head = ahead.Read(place.offset, kBefore);
      if (!head.ok()) return head.status();
      if (absl::Status status = CheckChecksum(place, "length", head->first(8), head->data() + 8); !status.ok()) {
        return status;
      }
      const auto length = Load<std::uint64_t>(head->data());
      if (length > kMostDataBytes) {
        return place.Error(absl::StrFormat("%d bytes of data, expected %d at most", length, kMostDataBytes));
      }
      const std::uint64_t bytes = kBefore + length + kAfter;
      if (bytes > left) {
        return place.Error(absl::StrFormat("%d bytes with its checksums, but the file ends after %d", bytes, left));
      }
      const IndexEntry entry{static_cast<std::uint32_t>(i), place.offset, bytes};
      if (absl::Status status = builder.Add(entry); !status.ok()) return status;
      place.offset += bytes;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Example> ReadExample(const RandomAccessFile& file, const Place& place, std::uint64_t size) {
  std::vector<std::uint8_t> record(size);
  if (absl::Status status = file.ReadAt(place.offset, absl::MakeSpan(record)); !status.ok()) return status;
  const Bytes length = Bytes(record).first(8);
  if (absl::Status status = CheckChecksum(place, "length", length, record.data() + 8); !status.ok()) return status;
  const Bytes data = Bytes(record).subspan(kBefore, size - kBefore - kAfter);
  if (const auto found = Load<std::uint64_t>(record.data()); found != data.size()) {
    return place.Error(absl::StrFormat("%d bytes of data, expected the %d that were there before", found, data.size()));
  }
  if (absl::Status status = CheckChecksum(place, "data", data, record.data() + size - kAfter); !status.ok()) {
    return status;
  }
  Example example;
  if (!example.ParseFromArray(data.data(), static_cast<int>(data.size()))) {
    return place.Error(absl::StrFormat("%d bytes of data that are none, expected a tf.train.Example", data.size()));
  }
  return example;
}

const char* ListName(const Feature& feature) {
  switch (feature.kind_case()) {
    case Feature::kBytesList:
      return "a bytes_list";
    case Feature::kFloatList:
      return "a float_list";
    case Feature::kInt64List:
      return "an int64_list";
    case Feature::KIND_NOT_SET:
      break;
  }
  return "no list";
}

// What a feature is taken as without being told. An error says what it is.
absl::StatusOr<TfRecordFeature> Learn(const std::string& name, const Feature& feature, const Place& place) {
  const auto refuse = [&](absl::string_view what) {
    return place.Error(
        absl::StrCat("feature ", Excerpt(name), " ", what, ": the data set has to say what its features are"));
  };
  TfRecordFeature learnt;
  learnt.name = name;
  int count = 0;
  switch (feature.kind_case()) {
    case Feature::kInt64List:
      learnt.kind = Kind::kIntegers;
      count = feature.int64_list().value_size();
      break;
    case Feature::kFloatList:
      learnt.kind = Kind::kFloats;
      count = feature.float_list().value_size();
      break;
    case Feature::kBytesList: {
      if (feature.bytes_list().value_size() != 1) {
        return refuse(absl::StrFormat("has %d texts or images", feature.bytes_list().value_size()));
      }
      const std::string& value = feature.bytes_list().value(0);
      learnt.kind = BeginsLikeImage(AsBytes(value)) ? Kind::kImage : Kind::kText;
      if (learnt.kind == Kind::kText && FindBadText(value) != std::string::npos)
        return refuse("is neither an image nor UTF-8 text");
      return learnt;
    }
    case Feature::KIND_NOT_SET:
      break;
  }
  if (count == 0) return refuse("is empty");
  if (count > 1) learnt.shape = {count};
  return learnt;
}

absl::StatusOr<std::vector<TfRecordFeature>> LearnFeatures(const Example& example, const Place& place) {
  std::map<std::string, const Feature*> sorted;
  for (const auto& [name, feature] : example.features().feature()) sorted[name] = &feature;
  if (sorted.empty()) return place.Error("has no features, expected one or more");
  std::vector<TfRecordFeature> features;
  for (const auto& [name, feature] : sorted) {
    absl::StatusOr<TfRecordFeature> learnt = Learn(name, *feature, place);
    if (!learnt.ok()) return learnt.status();
    features.push_back(*std::move(learnt));
  }
  return features;
}

absl::Status CheckFeatures(const std::string& path, const std::vector<TfRecordFeature>& features) {
  std::set<std::string> names;
  for (const TfRecordFeature& feature : features) {
    const auto refuse = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": feature ", Excerpt(feature.name), " ", what));
    };
    if (!names.insert(feature.name).second) return refuse("is given twice");
    if (feature.classes < 0) return refuse(absl::StrFormat("has %d classes, expected 0 or more", feature.classes));
    if (feature.classes > 0 && feature.kind != Kind::kIntegers) return refuse("has classes, expected integers");
    const bool has_shape = feature.kind != Kind::kText && feature.kind != Kind::kImage;
    if (!has_shape && !feature.shape.empty()) {
      return refuse(absl::StrCat("has the shape ", ShapeText(feature.shape), ", expected none of texts and images"));
    }
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < feature.shape.size(); ++i) {
      const std::int64_t extent = feature.shape[i];
      if (i == 0 && extent == kAnyExtent) continue;
      if (extent < 1 || elements > static_cast<std::int64_t>(kMostDataBytes) / extent) {
        return refuse(absl::StrCat("has the shape ", ShapeText(feature.shape),
                                   ", expected extents of 1 at least, the first of which may be any, and no more "
                                   "elements than a record can hold"));
      }
      elements *= extent;
    }
  }
  return absl::OkStatus();
}

Column MakeColumn(const TfRecordFeature& feature, const ImageOptions& image) {
  if (feature.kind == Kind::kImage) return ImageColumn(feature.name, image);
  Column column;
  column.name = feature.name;
  column.shape = feature.shape;
  column.classes = feature.classes;
  column.type = ElementType::kU8;
  if (feature.kind == Kind::kIntegers) column.type = ElementType::kI64;
  if (feature.kind == Kind::kFloats) column.type = ElementType::kF32;
  if (feature.kind == Kind::kText) {
    column.shape = {kAnyExtent};
    column.text = true;
  }
  return column;
}

// The value of `count` elements in the shape of the feature.
absl::StatusOr<Value> Shaped(const TfRecordFeature& feature, const void* from, std::int64_t count, ElementType type) {
  std::vector<std::int64_t> shape = feature.shape;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent == kAnyExtent ? 1 : extent;
  const bool any = !shape.empty() && shape.front() == kAnyExtent;
  if (any ? count % elements != 0 : count != elements) {
    return absl::DataLossError(
        absl::StrFormat("has %d elements, expected %s", count,
                        any ? absl::StrFormat("a multiple of %d, for %s", elements, ShapeText(shape))
                            : absl::StrFormat("%d, for %s", elements, ShapeText(shape))));
  }
  if (any) shape.front() = count / elements;
  const auto* const first = static_cast<const std::byte*>(from);
  return Value{std::move(shape), {first, first + static_cast<std::size_t>(count) * BytesOf(type)}};
}

// Errors are without the name of the feature.
absl::StatusOr<Value> ToValue(const TfRecordFeature& expected, const Feature& feature, const ImageOptions& image) {
  const auto other = [&](const char* list) {
    return absl::DataLossError(absl::StrCat("is ", ListName(feature), ", expected ", list));
  };
  if (expected.kind == Kind::kIntegers) {
    if (!feature.has_int64_list()) return other("an int64_list");
    const auto& values = feature.int64_list().value();
    for (const std::int64_t value : values) {
      if (expected.classes != 0 && (value < 0 || value >= expected.classes)) {
        return absl::DataLossError(absl::StrFormat("holds %d, expected 0 to %d", value, expected.classes - 1));
      }
    }
    return Shaped(expected, values.data(), values.size(), ElementType::kI64);
  }
  if (expected.kind == Kind::kFloats) {
    if (!feature.has_float_list()) return other("a float_list");
    const auto& values = feature.float_list().value();
    return Shaped(expected, values.data(), values.size(), ElementType::kF32);
  }
  if (!feature.has_bytes_list()) return other("a bytes_list");
  if (feature.bytes_list().value_size() != 1) {
    return absl::DataLossError(
        absl::StrFormat("has %d texts or images, expected one", feature.bytes_list().value_size()));
  }
  const std::string& value = feature.bytes_list().value(0);
  if (expected.kind == Kind::kImage) return DecodeImage(AsBytes(value), image);
  if (expected.kind == Kind::kBytes) {
    return Shaped(expected, value.data(), static_cast<std::int64_t>(value.size()), ElementType::kU8);
  }
  if (const std::size_t bad = FindBadText(value); bad != std::string::npos) {
    return absl::DataLossError(absl::StrFormat("at its byte %d: %s", bad, DescribeBadText(value, bad)));
  }
  return TextValue(value);
}

class TfRecordSource final : public SampleSource {
 public:
  TfRecordSource(const Files& files, TfRecordOptions options, IndexFile index)
      : options_(std::move(options)), index_(std::move(index)), files_(files, index_.files()) {}

  // Before anything else is called: learns the features if none are given.
  absl::Status Start() {
    if (options_.features.empty()) {
      const absl::StatusOr<Example> example = ReadRecord(0);
      if (!example.ok()) return example.status();
      auto features = LearnFeatures(*example, PlaceOf(0));
      if (!features.ok()) return features.status();
      options_.features = *std::move(features);
    }
    for (const TfRecordFeature& feature : options_.features) columns_.push_back(MakeColumn(feature, options_.image));
    return absl::OkStatus();
  }

  std::int64_t size() const override { return index_.size(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const absl::StatusOr<Example> example = ReadRecord(index);
    if (!example.ok()) return example.status();
    const auto& features = example->features().feature();
    Sample sample;
    for (const TfRecordFeature& expected : options_.features) {
      const auto found = features.find(expected.name);
      absl::StatusOr<Value> value = found == features.end()
                                        ? absl::DataLossError("is not there, expected in every record")
                                        : ToValue(expected, found->second, options_.image);
      if (!value.ok()) {
        return PlaceOf(index).Error(absl::StrCat("feature ", Excerpt(expected.name), " ", value.status().message()));
      }
      sample.push_back(*std::move(value));
    }
    return sample;
  }

 private:
  Place PlaceOf(std::int64_t index) const {
    const IndexEntry entry = index_.entry(index);
    return {index_.files()[entry.file].path, index - index_.first(entry.file), entry.offset};
  }

  absl::StatusOr<Example> ReadRecord(std::int64_t index) const {
    const IndexEntry entry = index_.entry(index);
    const auto file = files_.Open(entry.file);
    if (!file.ok()) return file.status();
    return ReadExample(**file, PlaceOf(index), entry.bytes);
  }

  TfRecordOptions options_;
  const IndexFile index_;
  const OpenFiles files_;
  std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenTfRecord(const Files& files, const std::string& path,
                                                           const TfRecordOptions& options) {
  if (absl::Status status = CheckOptions(options.image); !status.ok()) return status;
  if (absl::Status status = CheckFeatures(path, options.features); !status.ok()) return status;
  const absl::StatusOr<std::vector<std::string>> paths = ListShards(
      files, path, [](absl::string_view name) { return absl::StrContains(name, "tfrec"); },
      "a file with \"tfrec\" in its name");
  if (!paths.ok()) return paths.status();
  absl::StatusOr<IndexFile> index =
      OpenOrBuild(files, *paths, "TFRecord 1", options.cache_directory,
                  [&](IndexBuilder& builder) { return BuildIndex(files, *paths, builder); });
  if (!index.ok()) return index.status();
  if (index->size() == 0) {
    return absl::NotFoundError(
        absl::StrFormat("%s: %d files without a record, expected one at least", path, paths->size()));
  }
  auto source = std::make_unique<TfRecordSource>(files, options, *std::move(index));
  if (absl::Status status = source->Start(); !status.ok()) return status;
  return source;
}

}  // namespace downpour::data
