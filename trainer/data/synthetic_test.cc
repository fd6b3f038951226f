#include "trainer/data/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Lt;

const std::vector<std::string> kKinds = {"Images", "Text", "Speech", "Radar"};

std::unique_ptr<Dataset> Make(const SyntheticSpec& spec, Split split = Split::kTrain) {
  absl::StatusOr<std::unique_ptr<Dataset>> dataset = MakeSyntheticDataset(spec, split);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

std::vector<std::int64_t> Iota(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Batch ReadAll(const Dataset& dataset) { return *dataset.Read(Iota(dataset.size()), std::nullopt); }

// The bytes of one sample. Of a text, how long it is and its words: padding depends on the batch, but must be zero.
std::string Sample(const Batch& batch, std::int64_t sample) {
  std::string text;
  for (const std::vector<Array>& arrays : {batch.inputs, batch.targets}) {
    for (const Array& array : arrays) {
      const std::size_t size = array.bytes.size() / static_cast<std::size_t>(array.shape[0]);
      std::string bytes(size, '\0');
      std::memcpy(bytes.data(), array.bytes.data() + static_cast<std::size_t>(sample) * size, size);
      if (!array.lengths.empty()) {
        const std::size_t used = static_cast<std::size_t>(array.lengths[sample]) * BytesOf(array.type);
        EXPECT_EQ(bytes.find_first_not_of('\0', used), std::string::npos);
        bytes.resize(used);
      }
      text += bytes;
    }
  }
  return text;
}

// FNV-1a.
std::uint64_t Hash(const std::string& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

std::vector<std::int64_t> Labels(const Batch& batch) {
  const absl::Span<const std::int64_t> labels = batch.targets.at(0).values<std::int64_t>();
  return {labels.begin(), labels.end()};
}

std::string FieldsText(const SyntheticSpec& spec) {
  const absl::StatusOr<SampleFields> fields = SyntheticFields(spec);
  return fields.ok() ? ToString(*fields) : fields.status().ToString();
}

TEST(Synthetic, FieldsAndCounts) {
  EXPECT_EQ(FieldsText({.kind = "Images"}), "inputs {image: u8 [3, 32, 32]}, targets {label: i64 [] below 10}");
  EXPECT_EQ(FieldsText({.kind = "Text"}), "inputs {words: i32 [*] below 10000}, targets {label: i64 [] below 2}");
  EXPECT_EQ(FieldsText({.kind = "Speech"}), "inputs {frames: fp32 [11, 40]}, targets {label: i64 [] below 8192}");
  EXPECT_EQ(FieldsText({.kind = "Radar"}), "inputs {frames: fp32 [12, 96, 96]}, targets {next: fp32 [1, 96, 96]}");
  EXPECT_EQ(FieldsText({.kind = "Images", .shape = {1, 28, 20}, .classes = 7}),
            "inputs {image: u8 [1, 28, 20]}, targets {label: i64 [] below 7}");
  EXPECT_EQ(FieldsText({.kind = "Text", .classes = 4, .vocabulary = 50}),
            "inputs {words: i32 [*] below 50}, targets {label: i64 [] below 4}");
  EXPECT_EQ(FieldsText({.kind = "Radar", .shape = {4, 16, 20}}),
            "inputs {frames: fp32 [4, 16, 20]}, targets {next: fp32 [1, 16, 20]}");
  for (const std::string& kind : kKinds) {
    EXPECT_EQ((*MakeSyntheticDataset({.kind = kind}, Split::kTrain))->size(), 10000);
    EXPECT_EQ((*MakeSyntheticDataset({.kind = kind}, Split::kTest))->size(), 1000);
    const SyntheticSpec spec{.kind = kind, .samples = std::uint64_t{1} << 40, .test_samples = 7};
    EXPECT_EQ((*MakeSyntheticDataset(spec, Split::kTrain))->size(), std::int64_t{1} << 40);
    EXPECT_EQ((*MakeSyntheticDataset(spec, Split::kTest))->size(), 7);
    EXPECT_EQ(Make(spec)->size(), std::int64_t{1} << 40);
    EXPECT_EQ(Make(spec, Split::kTest)->size(), 7);
    EXPECT_EQ(Make(spec, Split::kTest)->fields(), *SyntheticFields(spec));
    EXPECT_EQ(Make(spec)->Read({(std::int64_t{1} << 40) - 1}, std::nullopt)->size(), 1);
  }
}

TEST(Synthetic, WhatDoesNotFitIsNamed) {
  const std::vector<std::pair<SyntheticSpec, std::string>> cases = {
      {{}, "kind: expected one of Images, Text, Speech, Radar, got \"\""},
      {{.kind = "images"}, "kind: expected one of Images, Text, Speech, Radar, got \"images\""},
      {{.kind = "Images", .samples = (std::uint64_t{1} << 40) + 1},
       "samples: expected 1 to 1099511627776, got 1099511627777"},
      {{.kind = "Radar", .test_samples = std::uint64_t{1} << 63},
       "testSamples: expected 1 to 1099511627776, got 9223372036854775808"},
      {{.kind = "Images", .shape = {28, 28}}, "shape: expected [channels, height, width], got [28, 28]"},
      {{.kind = "Speech", .shape = {1, 11, 40}}, "shape: expected [frames, values], got [1, 11, 40]"},
      {{.kind = "Radar", .shape = {12}}, "shape: expected [frames, height, width], got [12]"},
      {{.kind = "Text", .shape = {100}}, "shape: Text has none, got [100]"},
      {{.kind = "Images", .shape = {3, 0, 32}},
       "shape: expected extents of at least 1 and at most 16777216 values a sample, got [3, 0, 32]"},
      {{.kind = "Speech", .shape = {-1, -40}},
       "shape: expected extents of at least 1 and at most 16777216 values a sample, got [-1, -40]"},
      {{.kind = "Radar", .shape = {2, 4096, 2049}},
       "shape: expected extents of at least 1 and at most 16777216 values a sample, got [2, 4096, 2049]"},
      {{.kind = "Speech", .shape = {std::int64_t{1} << 62, 4}},
       "shape: expected extents of at least 1 and at most 16777216 values a sample, got [4611686018427387904, 4]"},
      {{.kind = "Images", .classes = 1}, "classes: expected 2 to 1048576, got 1"},
      {{.kind = "Speech", .classes = 1048577}, "classes: expected 2 to 1048576, got 1048577"},
      {{.kind = "Radar", .classes = 10}, "classes: Radar has none, got 10"},
      {{.kind = "Images", .vocabulary = 100}, "vocabulary: Images has none, got 100"},
      {{.kind = "Text", .vocabulary = 1}, "vocabulary: expected 2 to 16777216, got 1"},
      {{.kind = "Text", .classes = 100, .vocabulary = 100}, "vocabulary: expected more than classes, 100, got 100"},
      {{.kind = "Text", .classes = 20000}, "vocabulary: expected more than classes, 20000, got 10000"},
      {{.kind = "Speech", .min_length = 3}, "minLength: Speech has none, got 3"},
      {{.kind = "Radar", .max_length = 3}, "maxLength: Radar has none, got 3"},
      {{.kind = "Text", .max_length = 1048577}, "maxLength: expected 1 to 1048576, got 1048577"},
      {{.kind = "Text", .min_length = 1048577}, "minLength: expected 1 to 1048576, got 1048577"},
      {{.kind = "Text", .min_length = 8, .max_length = 7}, "maxLength: expected at least minLength, 8, got 7"},
      {{.kind = "Text", .min_length = 101}, "maxLength: expected at least minLength, 101, got 100"},
      {{.kind = "Text", .max_length = 19}, "maxLength: expected at least minLength, 20, got 19"},
  };
  for (const auto& [spec, message] : cases) {
    const absl::Status status = SyntheticFields(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_EQ(status.message(), "spec.dataset.synthetic." + message);
    EXPECT_EQ(MakeSyntheticDataset(spec, Split::kTest).status(), status);
    EXPECT_EQ(MakeSyntheticDataset(spec, Split::kTrain).status(), status);
  }
}

// Whatever the spec: values are in range, labels are balanced, and a sample is the same whenever and however it is
// read.
TEST(Synthetic, SamplesAreFunctionsOfTheirIndex) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    SyntheticSpec spec{.kind = kKinds[seed % 4], .samples = 1 + below(40), .seed = random()};
    if (spec.kind != "Radar") spec.classes = 2 + below(12);
    if (spec.kind == "Text") {
      spec.vocabulary = spec.classes + 1 + below(100);
      spec.min_length = 1 + below(10);
      spec.max_length = spec.min_length + below(10);
    } else {
      spec.shape.resize(spec.kind == "Speech" ? 2 : 3);
      for (std::int64_t& extent : spec.shape) extent = 1 + static_cast<std::int64_t>(below(seed < 20 ? 3 : 20));
    }
    const std::unique_ptr<Dataset> dataset = Make(spec);
    const Batch all = ReadAll(*dataset);
    ASSERT_EQ(all.size(), dataset->size());
    std::vector<std::string> samples;
    for (std::int64_t i = 0; i < all.size(); ++i) samples.push_back(Sample(all, i));

    std::vector<std::int64_t> indices(1 + below(60));
    for (std::int64_t& index : indices) index = static_cast<std::int64_t>(below(spec.samples));
    const Batch some = *Make(spec)->Read(indices, std::nullopt);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      ASSERT_EQ(Sample(some, static_cast<std::int64_t>(i)), samples[indices[i]]) << indices[i];
    }
    if (spec.kind == "Radar") {
      EXPECT_THAT(all.inputs[0].values<float>(), Each(AllOf(Ge(0.0F), Lt(1.0F))));
      EXPECT_THAT(all.targets[0].values<float>(), Each(AllOf(Ge(0.0F), Lt(1.0F))));
      continue;
    }
    std::vector<std::int64_t> per_class(spec.classes);
    for (const std::int64_t label : Labels(all)) ++per_class.at(label);
    EXPECT_LE(*std::max_element(per_class.begin(), per_class.end()),
              *std::min_element(per_class.begin(), per_class.end()) + 1);
    if (spec.kind == "Speech") {
      EXPECT_THAT(all.inputs[0].values<float>(), Each(AllOf(Ge(-3.0F), Lt(3.0F))));
    }
    if (spec.kind == "Text") {
      const Array& words = all.inputs[0];
      EXPECT_THAT(words.lengths, Each(AllOf(Ge(spec.min_length), Le(spec.max_length))));
      std::int64_t used = 0;
      for (const std::int32_t word : words.values<std::int32_t>()) {
        used += word != 0;
        ASSERT_GE(word, 0);
        ASSERT_LT(word, spec.vocabulary);
      }
      EXPECT_EQ(used, std::accumulate(words.lengths.begin(), words.lengths.end(), std::int64_t{0}));
    }
  }
}

TEST(Synthetic, SplitsAndSeedsHaveDifferentSamples) {
  for (const std::string& kind : kKinds) {
    std::set<std::string> samples;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      for (const Split split : {Split::kTrain, Split::kTest}) {
        const Batch batch = ReadAll(*Make({.kind = kind, .samples = 10, .test_samples = 10, .seed = seed}, split));
        for (std::int64_t i = 0; i < batch.size(); ++i) samples.insert(Sample(batch, i));
      }
    }
    EXPECT_EQ(samples.size(), 60U) << kind;
  }
}

TEST(Synthetic, LengthsAreUniform) {
  const Batch batch = ReadAll(*Make({.kind = "Text", .min_length = 3, .max_length = 7}));
  std::vector<int> counts(8);
  for (const std::int64_t length : batch.inputs[0].lengths) ++counts.at(length);
  EXPECT_THAT(std::vector<int>(counts.begin(), counts.begin() + 3), Each(0));
  EXPECT_THAT(std::vector<int>(counts.begin() + 3, counts.end()), Each(AllOf(Ge(1800), Le(2200))));
}

// Jobs compare results between machines and versions: the bits stay what they are.
TEST(Synthetic, TheBitsAreTheSameEverywhere) {
  const std::vector<std::pair<std::string, std::uint64_t>> hashes = {{"Images", 0x7e3028d1ca0d72abu},
                                                                     {"Text", 0x47308f704477f29fu},
                                                                     {"Speech", 0xb4ca4ff4794a87e0u},
                                                                     {"Radar", 0x1cac5e97fae8fa12u}};
  for (const auto& [kind, expected] : hashes) {
    const Batch batch = *Make({.kind = kind, .seed = 42}, Split::kTest)->Read({0, 1, 999}, std::nullopt);
    EXPECT_EQ(Hash(Sample(batch, 0) + Sample(batch, 1) + Sample(batch, 2)), expected) << kind;
  }
}

TEST(Synthetic, ThreadsMayReadTogether) {
  for (const std::string& kind : kKinds) {
    const std::unique_ptr<Dataset> dataset = Make({.kind = kind});
    const std::vector<std::int64_t> indices = Iota(16);
    std::vector<Batch> batches(4);
    std::vector<std::thread> threads;
    threads.reserve(batches.size());
    for (Batch& batch : batches) {
      threads.emplace_back([&] {
        for (int round = 0; round < 5; ++round) batch = *dataset->Read(indices, std::nullopt);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Batch& batch : batches) {
      EXPECT_EQ(batch.inputs[0].bytes, batches[0].inputs[0].bytes) << kind;
      EXPECT_EQ(batch.targets[0].bytes, batches[0].targets[0].bytes) << kind;
    }
  }
}

// A data set is as good as what can be learned of it: the training samples teach, the test samples examine.
struct Lesson {
  explicit Lesson(SyntheticSpec spec) {
    if (spec.samples == 0) spec.samples = 2000;
    train = ReadAll(*Make(spec, Split::kTrain));
    test = ReadAll(*Make(spec, Split::kTest));
  }
  // `guess` gets the index of a test sample.
  template <typename Guess>
  double Accuracy(Guess guess) const {
    const std::vector<std::int64_t> labels = Labels(test);
    std::size_t right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) right += guess(i) == labels[i];
    return static_cast<double>(right) / static_cast<double>(labels.size());
  }
  Batch train, test;
};

double SquaredDistance(const float* a, const float* b, std::size_t size) {
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += static_cast<double>((a[i] - b[i]) * (a[i] - b[i]));
  return sum;
}

// The label of the row of `known`, each of `size` values, that is nearest to `sample`.
std::int64_t Nearest(const std::vector<float>& known, const std::vector<std::int64_t>& labels, const float* sample,
                     std::size_t size) {
  double least = std::numeric_limits<double>::infinity();
  std::int64_t label = -1;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double distance = SquaredDistance(known.data() + i * size, sample, size);
    if (distance < least) {
      least = distance;
      label = labels[i];
    }
  }
  return label;
}

TEST(SyntheticIsLearned, ImagesByTheNearestMean) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {1, 28, 28}}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const Lesson lesson({.kind = "Images", .seed = seed, .shape = shape});
      const absl::Span<const std::uint8_t> train = lesson.train.inputs[0].values<std::uint8_t>();
      const absl::Span<const std::uint8_t> test = lesson.test.inputs[0].values<std::uint8_t>();
      const std::vector<std::int64_t> labels = Labels(lesson.train);
      const std::size_t size = train.size() / labels.size();
      std::vector<float> means(10 * size);
      for (std::size_t i = 0; i < train.size(); ++i) {
        means[labels[i / size] * size + i % size] += static_cast<float>(train[i]) / 200.0F;
      }
      const double accuracy = lesson.Accuracy([&](std::size_t i) {
        const std::vector<float> sample(test.begin() + i * size, test.begin() + (i + 1) * size);
        return Nearest(means, Iota(10), sample.data(), size);
      });
      EXPECT_GE(accuracy, 0.99) << "seed " << seed;
    }
  }
}

TEST(SyntheticIsLearned, TextByNaiveBayes) {
  for (const std::uint64_t classes : {2, 4}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const Lesson lesson({.kind = "Text", .seed = seed, .classes = classes});
      const auto for_words = [](const Array& words, std::size_t sample, auto visit) {
        const std::size_t row = sample * static_cast<std::size_t>(words.shape[1]);
        for (std::int64_t i = 0; i < words.lengths[sample]; ++i) visit(words.values<std::int32_t>()[row + i]);
      };
      const std::vector<std::int64_t> labels = Labels(lesson.train);
      std::vector<std::vector<double>> counts(classes, std::vector<double>(10000, 1.0));
      std::vector<double> totals(classes, 10000.0);
      for (std::size_t i = 0; i < labels.size(); ++i) {
        for_words(lesson.train.inputs[0], i, [&](std::int32_t word) {
          ++counts[labels[i]][word];
          ++totals[labels[i]];
        });
      }
      const double accuracy = lesson.Accuracy([&](std::size_t i) {
        std::vector<double> likelihoods(classes);
        for_words(lesson.test.inputs[0], i, [&](std::int32_t word) {
          for (std::size_t c = 0; c < classes; ++c) likelihoods[c] += std::log(counts[c][word] / totals[c]);
        });
        return std::max_element(likelihoods.begin(), likelihoods.end()) - likelihoods.begin();
      });
      EXPECT_GE(accuracy, 0.95) << "seed " << seed;
    }
  }
}

TEST(SyntheticIsLearned, SpeechByTheNearestSample) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Lesson lesson({.kind = "Speech", .samples = 1000, .seed = seed, .classes = 500});
    const absl::Span<const float> train = lesson.train.inputs[0].values<float>();
    const absl::Span<const float> test = lesson.test.inputs[0].values<float>();
    const std::vector<float> known(train.begin(), train.end());
    const std::vector<std::int64_t> labels = Labels(lesson.train);
    const std::size_t size = known.size() / labels.size();
    const double accuracy =
        lesson.Accuracy([&](std::size_t i) { return Nearest(known, labels, test.data() + i * size, size); });
    EXPECT_GE(accuracy, 0.95) << "seed " << seed;
  }
}

// The least-squares weights, by elimination.
std::vector<double> Solve(std::vector<std::vector<double>> squares, std::vector<double> products) {
  const std::size_t size = products.size();
  for (std::size_t i = 0; i < size; ++i) {
    squares[i][i] *= 1 + 1e-7;
    for (std::size_t row = i + 1; row < size; ++row) {
      const double factor = squares[row][i] / squares[i][i];
      for (std::size_t column = i; column < size; ++column) squares[row][column] -= factor * squares[i][column];
      products[row] -= factor * products[i];
    }
  }
  for (std::size_t i = size; i-- > 0;) {
    for (std::size_t column = i + 1; column < size; ++column) products[i] -= squares[i][column] * products[column];
    products[i] /= squares[i][i];
  }
  return products;
}

// One linear filter, of 3 x 3 pixels in each of the last six images, against taking the last image for the next.
TEST(SyntheticIsLearned, RadarByOneLinearFilter) {
  constexpr std::int64_t kSide = 96, kFrames = 12, kLast = 6, kWeights = kLast * 9;
  const Lesson lesson({.kind = "Radar", .samples = 100, .test_samples = 100});
  // Some pixels; `visit` gets what was seen around one, and what it is in the next image.
  const auto for_pixels = [](const Batch& batch, auto visit) {
    const absl::Span<const float> frames = batch.inputs[0].values<float>();
    std::vector<double> seen(kWeights);
    for (std::int64_t sample = 0; sample < batch.size(); ++sample) {
      for (std::int64_t pixel = sample % 37; pixel < kSide * kSide; pixel += 37) {
        const std::int64_t y = pixel / kSide, x = pixel % kSide;
        if (y == 0 || x == 0 || y == kSide - 1 || x == kSide - 1) continue;
        auto value = seen.begin();
        for (std::int64_t frame = kFrames - kLast; frame < kFrames; ++frame) {
          const std::int64_t middle = (sample * kFrames + frame) * kSide * kSide + pixel;
          for (std::int64_t row = middle - kSide; row <= middle + kSide; row += kSide) {
            value = std::copy_n(frames.begin() + row - 1, 3, value);
          }
        }
        visit(seen, batch.targets[0].values<float>()[sample * kSide * kSide + pixel]);
      }
    }
  };
  std::vector<std::vector<double>> squares(kWeights, std::vector<double>(kWeights));
  std::vector<double> products(kWeights);
  for_pixels(lesson.train, [&](const std::vector<double>& seen, double next) {
    for (std::size_t i = 0; i < kWeights; ++i) {
      products[i] += seen[i] * next;
      for (std::size_t j = 0; j < kWeights; ++j) squares[i][j] += seen[i] * seen[j];
    }
  });
  const std::vector<double> weights = Solve(squares, products);
  double filtered = 0, repeated = 0;
  for_pixels(lesson.test, [&](const std::vector<double>& seen, double next) {
    const double guess = std::inner_product(seen.begin(), seen.end(), weights.begin(), 0.0);
    filtered += (next - guess) * (next - guess);
    repeated += (next - seen[kWeights - 5]) * (next - seen[kWeights - 5]);
  });
  EXPECT_GE(repeated, 50 * filtered);
}

}  // namespace
}  // namespace downpour::data
