// The kernels between float32 and bfloat16 against trainer/core/codec/bf16.h.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/bf16.h"
#include "trainer/cuda/plugin.h"

namespace downpour::cuda {
namespace {

// At most so many of the others; an odd number, so that the last is half a word.
constexpr std::uint32_t kMost = 100003;

// Each of the upper halves of a float32, with lower ones that round it up, down and to even, then some of any bits.
std::vector<float> Values() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 3) {
    for (const std::uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  for (std::uint32_t i = 0; i < kMost; ++i) values.push_back(std::bit_cast<float>(i * 2654435761u));
  return values;
}

class Bf16RoundingTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::string path = GetParam() ? PluginPath() : absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/emulated.so");
    const absl::StatusOr<const PluginTable*> table = LoadPlugin(path);
    if (!table.ok()) GTEST_SKIP() << table.status().message();
    if (absl::Status found = CheckDevices(**table); !found.ok()) GTEST_SKIP() << found.message();
    table_ = *table;
    ASSERT_EQ(table_->use_device(0), 0);
  }
  void TearDown() override {
    for (void* const memory : memory_) EXPECT_EQ(table_->release(memory), 0);
  }

  // With a margin behind it that nobody may write.
  void* Allocate(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(table_->allocate(&memory, bytes + kMargin), 0);
    memory_.push_back(memory);
    const std::vector<char> pattern(bytes + kMargin, kPattern);
    Copy(memory, pattern.data(), pattern.size());
    return memory;
  }
  void Copy(void* to, const void* from, std::size_t bytes) {
    EXPECT_EQ(table_->copy(to, from, bytes, nullptr), 0);
    EXPECT_EQ(table_->synchronize(nullptr), 0);
  }
  // `bytes` of it and the margin, which is as it was.
  std::vector<char> Read(const void* memory, std::size_t bytes) {
    std::vector<char> all(bytes + kMargin);
    Copy(all.data(), memory, all.size());
    EXPECT_EQ(std::string(all.end() - kMargin, all.end()), std::string(kMargin, kPattern));
    all.resize(bytes);
    return all;
  }

  static constexpr std::size_t kMargin = 256;
  static constexpr char kPattern = 0x5a;
  const PluginTable* table_ = nullptr;
  std::vector<void*> memory_;
};

TEST_P(Bf16RoundingTest, RoundsAndWidensAsTheCodec) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{257}, Values().size()}) {
    std::vector<float> values = Values();
    values.resize(count);
    std::vector<std::uint8_t> halves(core::Bf16Bytes(count));
    core::EncodeBf16(values, halves.data());
    void* const from = Allocate(count * sizeof(float));
    void* const half = Allocate(halves.size());
    void* const back = Allocate(count * sizeof(float));
    Copy(from, values.data(), count * sizeof(float));
    ASSERT_EQ(table_->round_bf16(static_cast<const float*>(from), half, count, nullptr), 0);
    const std::vector<char> rounded = Read(half, halves.size());
    EXPECT_TRUE(std::equal(rounded.begin(), rounded.end(), halves.begin(), [](char a, std::uint8_t b) {
      return static_cast<std::uint8_t>(a) == b;
    })) << count;
    ASSERT_EQ(table_->widen_bf16(half, static_cast<float*>(back), count, nullptr), 0);
    core::DecodeBf16(halves, absl::MakeSpan(values));
    const std::vector<char> widened = Read(back, count * sizeof(float));
    EXPECT_TRUE(count == 0 || std::memcmp(widened.data(), values.data(), widened.size()) == 0) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(On, Bf16RoundingTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Device" : "Emulated"; });

}  // namespace
}  // namespace downpour::cuda
