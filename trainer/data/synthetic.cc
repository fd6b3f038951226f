#include "trainer/data/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/data/random.h"

// Everything is computed in integers, of which floats are fractions: so the same bits come out on every machine.
namespace downpour::data {
namespace {

struct Kind {
  const char* dimensions;  // of its shape
  SyntheticSpec usual;     // 0 or empty: samples of this kind have no such thing
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"[channels, height, width]",
       {.kind = "Images", .samples = 10000, .test_samples = 1000, .seed = 1, .shape = {3, 32, 32}, .classes = 10}},
      {"",
       {.kind = "Text",
        .samples = 10000,
        .test_samples = 1000,
        .seed = 1,
        .classes = 2,
        .vocabulary = 10000,
        .min_length = 20,
        .max_length = 100}},
      {"[frames, values]",
       {.kind = "Speech", .samples = 10000, .test_samples = 1000, .seed = 1, .shape = {11, 40}, .classes = 8192}},
      {"[frames, height, width]",
       {.kind = "Radar", .samples = 10000, .test_samples = 1000, .seed = 1, .shape = {12, 96, 96}}},
  };
  return kinds;
}

struct Count {
  const char* name;  // in the manifest
  std::uint64_t SyntheticSpec::*value;
  std::uint64_t least;
  std::uint64_t most;
};

constexpr std::int64_t kMaxValues = std::int64_t{1} << 24;  // of one sample

constexpr std::array<Count, 7> kCounts = {{
    {"samples", &SyntheticSpec::samples, 1, std::uint64_t{1} << 40},
    {"testSamples", &SyntheticSpec::test_samples, 1, std::uint64_t{1} << 40},
    {"seed", &SyntheticSpec::seed, 1, std::numeric_limits<std::uint64_t>::max()},
    {"classes", &SyntheticSpec::classes, 2, std::uint64_t{1} << 20},
    {"vocabulary", &SyntheticSpec::vocabulary, 2, std::uint64_t{1} << 24},
    {"minLength", &SyntheticSpec::min_length, 1, std::uint64_t{1} << 20},
    {"maxLength", &SyntheticSpec::max_length, 1, std::uint64_t{1} << 20},
}};

template <typename... Parts>
absl::Status Refuse(const char* field, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("spec.dataset.synthetic.", field, ": ", parts...));
}

// Of a sample's input; 0: more than kMaxValues, or an extent below 1.
std::int64_t ValuesOf(const std::vector<std::int64_t>& shape) {
  std::int64_t values = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 1 || extent > kMaxValues / values) return 0;
    values *= extent;
  }
  return values;
}

// The spec with what is usual in the place of what it leaves out.
absl::StatusOr<SyntheticSpec> Complete(SyntheticSpec spec) {
  const auto kind =
      std::find_if(Kinds().begin(), Kinds().end(), [&](const Kind& some) { return some.usual.kind == spec.kind; });
  if (kind == Kinds().end()) {
    const auto name = [](std::string* text, const Kind& some) { text->append(some.usual.kind); };
    return Refuse("kind", "expected one of ", absl::StrJoin(Kinds(), ", ", name), ", got \"", spec.kind, "\"");
  }
  const SyntheticSpec& usual = kind->usual;
  if (spec.shape.empty()) {
    spec.shape = usual.shape;
  } else {
    const std::string got = absl::StrCat(", got [", absl::StrJoin(spec.shape, ", "), "]");
    if (usual.shape.empty()) return Refuse("shape", spec.kind, " has none", got);
    if (spec.shape.size() != usual.shape.size()) return Refuse("shape", "expected ", kind->dimensions, got);
    if (ValuesOf(spec.shape) == 0) {
      return Refuse("shape", "expected extents of at least 1 and at most ", kMaxValues, " values a sample", got);
    }
  }
  for (const Count& count : kCounts) {
    std::uint64_t& value = spec.*count.value;
    if (value == 0) {
      value = usual.*count.value;
    } else if (usual.*count.value == 0) {
      return Refuse(count.name, spec.kind, " has none, got ", value);
    } else if (value < count.least || value > count.most) {
      return Refuse(count.name, "expected ", count.least, " to ", count.most, ", got ", value);
    }
  }
  if (spec.min_length > spec.max_length) {
    return Refuse("maxLength", "expected at least minLength, ", spec.min_length, ", got ", spec.max_length);
  }
  if (usual.vocabulary > 0 && spec.vocabulary <= spec.classes) {
    return Refuse("vocabulary", "expected more than classes, ", spec.classes, ", got ", spec.vocabulary);
  }
  return spec;
}

SampleFields FieldsOf(const SyntheticSpec& spec) {
  const Field label{"label", ElementType::kI64, {}, static_cast<std::int64_t>(spec.classes)};
  if (spec.kind == "Images") return {{{"image", ElementType::kU8, spec.shape}}, {label}};
  if (spec.kind == "Text") {
    return {{{"words", ElementType::kI32, {kRagged}, static_cast<std::int64_t>(spec.vocabulary)}}, {label}};
  }
  const Field frames{"frames", ElementType::kF32, spec.shape};
  if (spec.kind == "Speech") return {{frames}, {label}};
  return {{frames}, {{"next", ElementType::kF32, {1, spec.shape[1], spec.shape[2]}}}};
}

std::int64_t SizeOf(const SyntheticSpec& spec, Split split) {
  return static_cast<std::int64_t>(split == Split::kTrain ? spec.samples : spec.test_samples);
}

// What random numbers are for: each has its own.
enum class Purpose : std::uint64_t { kTrainingSample, kTestSample, kPattern };

// Fixed point: 256 parts of a cell of a grid, or of a pixel.
constexpr int kFractionBits = 8;
constexpr std::int64_t kOne = std::int64_t{1} << kFractionBits;

// Where the points of an extent are on a grid whose outermost lines are its ends: behind which line, how far.
struct Axis {
  Axis(std::int64_t extent, std::int64_t lines, std::int64_t shift) {
    points.reserve(static_cast<std::size_t>(extent));
    const std::int64_t end = (lines - 1) * kOne;
    for (std::int64_t i = 0; i < extent; ++i) {
      const std::int64_t at = std::clamp<std::int64_t>(end * i / std::max<std::int64_t>(extent - 1, 1) + shift, 0, end);
      const std::int64_t line = std::min(at >> kFractionBits, lines - 2);
      points.push_back({static_cast<std::int32_t>(line), static_cast<std::int16_t>(at - line * kOne)});
    }
  }
  struct Point {
    std::int32_t line;
    std::int16_t fraction;
  };
  std::vector<Point> points;
};

// A smooth function of rows and columns, row-major: random values at the crossings of a grid's lines, bilinear between
// them. 16 bits are enough, and fast.
template <std::size_t kRowLines, std::size_t kColumnLines>
void DrawPattern(Random random, const Axis& rows, const Axis& columns, absl::Span<std::int16_t> to) {
  const std::size_t width = columns.points.size();
  std::vector<std::int16_t> lines(kRowLines * width);
  for (std::size_t i = 0; i < kRowLines; ++i) {
    std::array<std::int32_t, kColumnLines> values{};
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.Between(-128, 127));
    std::transform(columns.points.begin(), columns.points.end(), lines.data() + i * width, [&](const Axis::Point& at) {
      return static_cast<std::int16_t>(values[at.line] * (kOne - at.fraction) + values[at.line + 1] * at.fraction);
    });
  }
  std::int16_t* next = to.data();
  for (const Axis::Point& row : rows.points) {
    const std::int16_t* above = lines.data() + row.line * width;
    const std::int16_t* below = above + width;
    const std::int16_t from_above = static_cast<std::int16_t>(kOne - row.fraction);
    for (std::size_t i = 0; i < width; ++i) {
      *next++ = static_cast<std::int16_t>((above[i] * from_above + below[i] * row.fraction) >> kFractionBits);
    }
  }
}

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(SyntheticSpec spec, Split split)
      : spec_(std::move(spec)), split_(split), fields_(FieldsOf(spec_)), values_(ValuesOf(spec_.shape)) {}

  std::int64_t size() const override { return SizeOf(spec_, split_); }
  const SampleFields& fields() const override { return fields_; }
  Deferred Defer() override { return {{{fields_.inputs[0], {}}}, {{fields_.targets[0], {}}}, true}; }

 protected:
  const SyntheticSpec& spec() const { return spec_; }
  std::int64_t extent(std::size_t dimension) const { return spec_.shape[dimension]; }
  std::size_t values() const { return static_cast<std::size_t>(values_); }  // of a sample's input

  Random ForSample(std::int64_t index) const {
    return {spec_.seed,
            static_cast<std::uint64_t>(split_ == Split::kTrain ? Purpose::kTrainingSample : Purpose::kTestSample),
            static_cast<std::uint64_t>(index)};
  }
  Random ForPattern(std::int64_t number) const {
    return {spec_.seed, static_cast<std::uint64_t>(Purpose::kPattern), static_cast<std::uint64_t>(number)};
  }
  std::int64_t Label(std::int64_t index) const { return index % static_cast<std::int64_t>(spec_.classes); }

  Array Labels(absl::Span<const std::int64_t> indices) const {
    Array labels = MakeArray(fields_.targets[0], static_cast<std::int64_t>(indices.size()));
    std::transform(indices.begin(), indices.end(), labels.mutable_values<std::int64_t>().begin(),
                   [this](std::int64_t index) { return Label(index); });
    return labels;
  }

 private:
  const SyntheticSpec spec_;
  const Split split_;
  const SampleFields fields_;
  const std::int64_t values_;
};

class Images final : public SyntheticDataset {
 public:
  using SyntheticDataset::SyntheticDataset;

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    Batch batch{{MakeArray(fields().inputs[0], static_cast<std::int64_t>(indices.size()))}, {Labels(indices)}};
    std::uint8_t* to = batch.inputs[0].mutable_values<std::uint8_t>().data();
    std::vector<std::int16_t> pattern(static_cast<std::size_t>(extent(1) * extent(2)));
    std::vector<std::uint8_t> noise((pattern.size() + 7) / 8 * 8);
    for (const std::int64_t index : indices) {
      Random random = ForSample(index);
      const Axis rows(extent(1), kLines, random.Between(-kOne / 4, kOne / 4));
      const Axis columns(extent(2), kLines, random.Between(-kOne / 4, kOne / 4));
      const std::int16_t gain = static_cast<std::int16_t>(random.Between(kOne * 3 / 4, kOne * 5 / 4));
      for (std::int64_t channel = 0; channel < extent(0); ++channel) {
        DrawPattern<kLines, kLines>(ForPattern(Label(index) * extent(0) + channel), rows, columns,
                                    absl::MakeSpan(pattern));
        for (std::size_t i = 0; i < noise.size(); i += 8) {
          const std::uint64_t bits = random.Next();
          for (std::size_t j = 0; j < 8; ++j) noise[i + j] = static_cast<std::uint8_t>(bits >> 8 * j);
        }
        for (std::size_t i = 0; i < pattern.size(); ++i) {
          const std::int32_t value = (pattern[i] * gain >> 16) + (noise[i] >> 1) + 64;
          to[i] = static_cast<std::uint8_t>(std::clamp(value, 0, 255));
        }
        to += pattern.size();
      }
    }
    return batch;
  }

 private:
  static constexpr std::int64_t kLines = 6;
};

class Text final : public SyntheticDataset {
 public:
  using SyntheticDataset::SyntheticDataset;

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    std::vector<std::int64_t> lengths;
    lengths.reserve(indices.size());
    for (const std::int64_t index : indices) {
      Random random = ForSample(index);
      lengths.push_back(Length(random));
    }
    Batch batch{{MakeRaggedArray(fields().inputs[0], std::move(lengths))}, {Labels(indices)}};
    std::int32_t* to = batch.inputs[0].mutable_values<std::int32_t>().data();
    for (const std::int64_t index : indices) {
      Random random = ForSample(index);
      const std::int64_t length = Length(random);
      for (std::int64_t i = 0; i < length; ++i) to[i] = static_cast<std::int32_t>(Word(random, Label(index)));
      to += batch.inputs[0].shape[1];
    }
    return batch;
  }

 private:
  std::int64_t Length(Random& random) const {
    return random.Between(static_cast<std::int64_t>(spec().min_length), static_cast<std::int64_t>(spec().max_length));
  }

  std::int64_t Word(Random& random, std::int64_t label) const {
    const std::int64_t classes = static_cast<std::int64_t>(spec().classes);
    const std::int64_t last = static_cast<std::int64_t>(spec().vocabulary) - 1;
    if (random.Between(0, 3) == 0) {  // a word of the class, from the rare end of the vocabulary
      const std::int64_t own = std::min<std::int64_t>(last / classes, 50);
      return last - label - classes * random.Between(0, own - 1);
    }
    // Zipf's law: each octave is as frequent as any other.
    const std::int64_t octaves = std::bit_width(spec().vocabulary - 1);
    const std::int64_t first = std::int64_t{1} << random.Between(0, octaves - 1);
    return random.Between(first, std::min(2 * first - 1, last));
  }
};

class Speech final : public SyntheticDataset {
 public:
  using SyntheticDataset::SyntheticDataset;

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    Batch batch{{MakeArray(fields().inputs[0], static_cast<std::int64_t>(indices.size()))}, {Labels(indices)}};
    float* to = batch.inputs[0].mutable_values<float>().data();
    std::vector<std::int16_t> pattern(values());
    const Axis rows(extent(0), kFrameLines, 0);
    const Axis columns(extent(1), kValueLines, 0);
    for (const std::int64_t index : indices) {
      DrawPattern<kFrameLines, kValueLines>(ForPattern(Label(index)), rows, columns, absl::MakeSpan(pattern));
      Random random = ForSample(index);
      std::uint64_t noise = 0;
      for (std::size_t i = 0; i < pattern.size(); ++i) {
        noise = i % 4 == 0 ? random.Next() : noise >> 16;
        const std::int32_t value = 2 * pattern[i] + static_cast<std::int32_t>(noise & 65535) - 32768;
        *to++ = static_cast<float>(value) / 32768.0F;
      }
    }
    return batch;
  }

 private:
  static constexpr std::int64_t kFrameLines = 4;
  static constexpr std::int64_t kValueLines = 8;
};

class Radar final : public SyntheticDataset {
 public:
  using SyntheticDataset::SyntheticDataset;

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    const std::int64_t samples = static_cast<std::int64_t>(indices.size());
    Batch batch{{MakeArray(fields().inputs[0], samples)}, {MakeArray(fields().targets[0], samples)}};
    float* input = batch.inputs[0].mutable_values<float>().data();
    float* target = batch.targets[0].mutable_values<float>().data();
    std::vector<std::int32_t> image(static_cast<std::size_t>(extent(1) * extent(2)));
    for (const std::int64_t index : indices) {
      Random random = ForSample(index);
      std::vector<Blob> blobs(static_cast<std::size_t>(random.Between(3, 6)));
      for (Blob& blob : blobs) blob = MakeBlob(random);
      for (std::int64_t time = 0; time <= extent(0); ++time) {
        std::fill(image.begin(), image.end(), 0);
        for (const Blob& blob : blobs) Draw(blob, time, image.data());
        float*& to = time < extent(0) ? input : target;
        to = std::transform(image.begin(), image.end(), to,
                            [](std::int32_t value) { return static_cast<float>(value) / static_cast<float>(kWhole); });
      }
    }
    return batch;
  }

 private:
  // In fixed-point pixels, and pixels a frame.
  struct Blob {
    std::int64_t radius;
    std::int32_t opacity;  // in the middle, of 2^15
    std::int64_t row, column;
    std::int64_t row_velocity, column_velocity;
  };

  // Its middle is inside from the first frame to the one that is to be predicted.
  Blob MakeBlob(Random& random) const {
    const std::int64_t height = extent(1) * kOne;
    const std::int64_t width = extent(2) * kOne;
    const auto start = [&](std::int64_t side, std::int64_t& velocity) {
      velocity = random.Between(-side / 4, side / 4) / extent(0);
      const std::int64_t way = velocity * extent(0);
      return random.Between(std::max<std::int64_t>(0, -way), side - 1 - std::max<std::int64_t>(0, way));
    };
    Blob blob{};
    blob.radius = std::max(random.Between(std::min(height, width) / 8, std::min(height, width) / 4), kOne);
    blob.opacity = static_cast<std::int32_t>(random.Between(kWhole / 4, kWhole - kWhole / 4));
    blob.row = start(height, blob.row_velocity);
    blob.column = start(width, blob.column_velocity);
    return blob;
  }

  // The pixels of an extent that a blob covers, and the squares of their distances from its middle: 2^15 is the
  // radius's.
  struct Cover {
    std::int64_t first;
    std::vector<std::int32_t> squares;
  };
  static Cover MakeCover(std::int64_t middle, std::int64_t radius, std::int64_t pixels) {
    Cover cover{std::max<std::int64_t>((middle - radius) >> kFractionBits, 0), {}};
    const std::int64_t end = std::min(((middle + radius) >> kFractionBits) + 1, pixels);
    for (std::int64_t i = cover.first; i < end; ++i) {
      const std::int64_t distance = i * kOne + kOne / 2 - middle;
      cover.squares.push_back(static_cast<std::int32_t>(distance * distance * kWhole / (radius * radius)));
    }
    return cover;
  }

  // opacity * (1 - (distance / radius)^2)^2, over what is there as one half-transparent sheet over another.
  void Draw(const Blob& blob, std::int64_t time, std::int32_t* image) const {
    const Cover rows = MakeCover(blob.row + time * blob.row_velocity, blob.radius, extent(1));
    const Cover columns = MakeCover(blob.column + time * blob.column_velocity, blob.radius, extent(2));
    std::int32_t* row = image + rows.first * extent(2) + columns.first;
    for (const std::int32_t row_square : rows.squares) {
      for (std::size_t i = 0; i < columns.squares.size(); ++i) {
        const std::int32_t inside = std::max(kWhole - row_square - columns.squares[i], 0);
        const std::int32_t value = (inside * inside >> 15) * blob.opacity >> 15;
        row[i] += value - (row[i] * value >> 15);
      }
      row += extent(2);
    }
  }

  static constexpr std::int32_t kWhole = std::int32_t{1} << 15;
};

}  // namespace

absl::StatusOr<SampleFields> SyntheticFields(const SyntheticSpec& spec) {
  const absl::StatusOr<SyntheticSpec> complete = Complete(spec);
  if (!complete.ok()) return complete.status();
  return FieldsOf(*complete);
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticDataset(const SyntheticSpec& spec, Split split) {
  absl::StatusOr<SyntheticSpec> complete = Complete(spec);
  if (!complete.ok()) return complete.status();
  if (complete->kind == "Images") return std::make_unique<Images>(*std::move(complete), split);
  if (complete->kind == "Text") return std::make_unique<Text>(*std::move(complete), split);
  if (complete->kind == "Speech") return std::make_unique<Speech>(*std::move(complete), split);
  return std::make_unique<Radar>(*std::move(complete), split);
}

}  // namespace downpour::data
