#include "trainer/core/bitmap.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Random = std::independent_bits_engine<std::mt19937, 32, std::uint32_t>;

TEST(Bitmap, AgreesWithAVectorOfBits) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t size = random() % 70;
    Bitmap bitmap(size);
    Bitmap other(size);
    std::vector<bool> model(size, false);
    std::vector<bool> other_model(size, false);
    for (std::uint32_t i = 0; size != 0 && i < random() % 100; ++i) {
      std::uint32_t bit = random() % size;
      bitmap.Set(bit);
      model[bit] = true;
      bit = random() % size;
      other.Set(bit);
      other_model[bit] = true;
    }
    const Bitmap copy = Bitmap::FromBytes(size, bitmap.bytes());
    Bitmap both = bitmap;
    both.And(other);
    std::uint32_t count = 0;
    for (std::uint32_t bit = 0; bit < size; ++bit) {
      ASSERT_EQ(bitmap.Test(bit), model[bit]);
      ASSERT_EQ(copy.Test(bit), model[bit]);
      ASSERT_EQ(both.Test(bit), model[bit] && other_model[bit]);
      ASSERT_EQ((static_cast<unsigned char>(bitmap.bytes()[bit / 8]) >> (bit % 8)) & 1, model[bit] ? 1 : 0);
      count += model[bit] ? 1 : 0;
    }
    EXPECT_EQ(bitmap.Count(), count);
    EXPECT_EQ(bitmap.All(), count == size);
    EXPECT_EQ(bitmap.bytes().size(), (size + 7) / 8);
  }
}

TEST(Bitmap, AllOnesHasNoBitBeyondItsSize) {
  for (std::uint32_t size = 0; size < 70; ++size) {
    const Bitmap ones(size, true);
    EXPECT_EQ(ones.Count(), size);
    EXPECT_TRUE(ones.All());
    EXPECT_FALSE(ones.Test(size));
  }
}

TEST(Bitmap, BytesOfAnyLengthAreTaken) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t size = random() % 40;
    const std::string bytes(random() % 8, '\xff');
    const Bitmap bitmap = Bitmap::FromBytes(size, bytes);
    EXPECT_EQ(bitmap.size(), size);
    EXPECT_EQ(bitmap.Count(), std::min<std::size_t>(size, bytes.size() * 8));
  }
}

}  // namespace
}  // namespace downpour::core
