#include "trainer/core/layout.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Random = std::independent_bits_engine<std::mt19937, 32, std::uint32_t>;

v1::TensorSpec MakeTensor(const std::vector<std::int64_t>& shape, v1::ElementType type = v1::FLOAT32) {
  v1::TensorSpec tensor;
  tensor.set_name("weight");
  tensor.set_type(type);
  for (const std::int64_t dimension : shape) tensor.add_shape(dimension);
  return tensor;
}

std::uint64_t Elements(const v1::TensorSpec& tensor) {
  return std::accumulate(
      tensor.shape().begin(), tensor.shape().end(), std::uint64_t{1},
      [](std::uint64_t product, std::int64_t dimension) { return product * static_cast<std::uint64_t>(dimension); });
}

std::vector<v1::TensorSpec> RandomTensors(Random& random) {
  std::vector<v1::TensorSpec> tensors;
  for (std::uint32_t i = 0; i < 1 + random() % 6; ++i) {
    switch (random() % 4) {
      case 0:
        tensors.push_back(MakeTensor({}));
        break;
      case 1:
        tensors.push_back(MakeTensor({1 + static_cast<std::int64_t>(random() % 100)}));
        break;
      case 2:
        tensors.push_back(
            MakeTensor({static_cast<std::int64_t>(kSliceBytes / 4) * (1 + random() % 3)}));  // exactly whole slices
        break;
      default:
        tensors.push_back(MakeTensor({1 + static_cast<std::int64_t>(random() % 3000), 1 + random() % 3000}));
    }
  }
  return tensors;
}

TEST(CutTensors, CoversEveryTensorOnceInOrderWithSlicesOfAtMost4MiB) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::vector<v1::TensorSpec> tensors = RandomTensors(random);
    const auto slices = CutTensors(tensors);
    ASSERT_TRUE(slices.ok()) << slices.status();
    std::size_t next = 0;
    for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      for (std::uint64_t offset = 0; offset < Elements(tensors[tensor]); ++next) {
        ASSERT_LT(next, slices->size());
        const Slice& slice = (*slices)[next];
        ASSERT_EQ(slice.tensor, tensor);
        ASSERT_EQ(slice.offset, offset);
        ASSERT_GE(slice.elements, 1u);
        ASSERT_LE(slice.bytes(), 4u << 20);
        ASSERT_EQ(slice.offset * 4 % 64, 0u);
        offset += slice.elements;
        const bool last = offset == Elements(tensors[tensor]);
        if (!last) {
          ASSERT_EQ(slice.bytes(), 4u << 20);
        }
        ASSERT_LE(offset, Elements(tensors[tensor]));
      }
    }
    EXPECT_EQ(next, slices->size());
  }
}

TEST(CutTensors, DependsOnEachTensorAlone) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<v1::TensorSpec> tensors = RandomTensors(random);
    const auto together = CutTensors(tensors);
    ASSERT_TRUE(together.ok());
    std::size_t next = 0;
    for (const v1::TensorSpec& tensor : tensors) {
      const auto alone = CutTensors(std::vector<v1::TensorSpec>{tensor});
      ASSERT_TRUE(alone.ok());
      for (const Slice& slice : *alone) {
        EXPECT_EQ(slice.offset, (*together)[next].offset);
        EXPECT_EQ(slice.elements, (*together)[next].elements);
        ++next;
      }
    }
    EXPECT_EQ(next, together->size());
  }
}

TEST(CutTensors, RefusesWhatHasNoElementsOrTooMany) {
  const std::vector<v1::TensorSpec> refused[] = {
      {},
      {MakeTensor({0})},
      {MakeTensor({3, -1})},
      {MakeTensor({std::int64_t{1} << 40, 2})},
      {MakeTensor({INT64_MAX, INT64_MAX, 2})},
      {MakeTensor({3}, v1::ELEMENT_UNSPECIFIED)},
      {MakeTensor({3}), MakeTensor({4, 0})},
  };
  for (const std::vector<v1::TensorSpec>& tensors : refused) {
    EXPECT_EQ(CutTensors(tensors).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(PlaceSlices, TheFullestCarriesAtMostTheMeanAndOneSlice) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    std::vector<Slice> slices(1 + random() % 60);
    for (Slice& slice : slices)
      slice.elements = 1 + random() % (random() % 3 == 0 ? std::uint32_t{kSliceBytes / 4} : 100u);
    const std::uint32_t ps_count = 1 + random() % 9;
    const std::vector<std::uint32_t> primary = PlaceSlices(slices, ps_count);
    EXPECT_EQ(primary, PlaceSlices(slices, ps_count)) << "deterministic";
    ASSERT_EQ(primary.size(), slices.size());
    std::vector<std::uint64_t> load(ps_count, 0);
    std::uint64_t largest = 0;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < slices.size(); ++i) {
      ASSERT_LT(primary[i], ps_count);
      load[primary[i]] += slices[i].bytes();
      largest = std::max(largest, slices[i].bytes());
      total += slices[i].bytes();
    }
    const std::uint64_t fullest = *std::max_element(load.begin(), load.end());
    EXPECT_LE(fullest * ps_count, total + largest * ps_count);
    EXPECT_EQ(std::count(load.begin(), load.end(), 0u),
              static_cast<std::ptrdiff_t>(ps_count - std::min<std::size_t>(ps_count, slices.size())))
        << "a ps without a slice while another has two";
  }
}

TEST(CompareStamps, OrdersByGenerationThenIncarnationThenEpoch) {
  std::vector<v1::ViewStamp> ordered;
  for (std::uint32_t i = 0; i < 27; ++i) {
    v1::ViewStamp stamp;
    stamp.set_generation(i / 9);
    stamp.set_incarnation(i / 3 % 3);
    stamp.set_epoch(i % 3);
    ordered.push_back(stamp);
  }
  for (std::size_t a = 0; a < ordered.size(); ++a) {
    for (std::size_t b = 0; b < ordered.size(); ++b) {
      const int result = CompareStamps(ordered[a], ordered[b]);
      EXPECT_EQ(result < 0, a < b);
      EXPECT_EQ(result > 0, a > b);
    }
  }
}

TEST(LayoutTest, TensorsAreTheSameIfNamesTypesKindsAndShapesAre) {
  v1::View view;
  for (const char* name : {"a", "b"}) {
    v1::TensorSpec& tensor = *view.add_tensors();
    tensor.set_name(name);
    tensor.set_type(v1::FLOAT32);
    tensor.add_shape(2);
  }
  const std::vector<v1::TensorSpec> mine(view.tensors().begin(), view.tensors().end());
  EXPECT_EQ(TensorDifference(mine, view.tensors()), "");
  const std::pair<std::function<void(v1::View&)>, std::string> changes[] = {
      {[](v1::View& other) { other.mutable_tensors(0)->set_name("c"); },
       "tensor 1 is the parameter c [2], expected the parameter a [2]"},
      {[](v1::View& other) { other.mutable_tensors(0)->set_shape(0, 3); },
       "tensor 1 is the parameter a [3], expected the parameter a [2]"},
      {[](v1::View& other) { other.mutable_tensors(0)->add_shape(1); },
       "tensor 1 is the parameter a [2, 1], expected the parameter a [2]"},
      {[](v1::View& other) { other.mutable_tensors(1)->set_type(v1::ELEMENT_UNSPECIFIED); },
       "tensor 2 is the parameter b [2] of ELEMENT_UNSPECIFIED, expected the parameter b [2]"},
      {[](v1::View& other) { other.mutable_tensors(1)->set_kind(v1::BUFFER); },
       "tensor 2 is the buffer b [2], expected the parameter b [2]"},
      {[](v1::View& other) { other.mutable_tensors()->SwapElements(0, 1); },
       "tensor 1 is the parameter b [2], expected the parameter a [2]"},
      {[](v1::View& other) { other.mutable_tensors()->RemoveLast(); }, "1 tensors, expected 2"},
  };
  for (const auto& [change, difference] : changes) {
    v1::View other = view;
    change(other);
    EXPECT_EQ(TensorDifference(mine, other.tensors()), difference);
  }
}

}  // namespace
}  // namespace downpour::core
