#include <cfloat>

#include "trainer/cuda/kernels/gradient_block.cuh"

// As trainer/core/codec/int8.h: each block of 256 values is a float32 scale and then an int8 for each value.
namespace downpour::cuda {
namespace {

constexpr float kLargestScale = FLT_MAX / 128;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
constexpr std::uint32_t kRoundBits = 0x4b400000;
constexpr std::uint64_t kBlockBytes = sizeof(float) + kBlock;

__device__ inline std::int32_t Quantised(float value, float inverse) {
  // A NaN keeps its sign, which arithmetic does not promise here.
  if (MagnitudeOf(value) > 0x7f800000) return (BitsOf(value) >> 31) != 0 ? -127 : 127;
  const auto integer = static_cast<std::int32_t>(BitsOf(value * inverse + kRound) - kRoundBits);
  return integer < -127 ? -127 : integer > 127 ? 127 : integer;
}

__global__ void Int8(EncodeArguments a) {
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    LoadAndCheck(a, block, sums);
    // The bits of magnitudes are ordered as the numbers are.
    std::uint32_t most = 0;
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) most = max(most, MagnitudeOf(sums[i]));
    for (unsigned apart = 16; apart > 0; apart /= 2) most = max(most, __shfl_xor_sync(kAllLanes, most, apart));

    const float largest = most < 0x7f800000 ? FloatOf(most) : FLT_MAX;
    float scale = largest / 127;
    if (scale > kLargestScale) scale = kLargestScale;
    if (scale < FLT_MIN) scale = 0;
    const float inverse = scale == 0 ? 0 : 1 / scale;
    std::uint8_t* const out = a.bytes + block * kBlockBytes;
    if (Lane() == 0) *reinterpret_cast<float*>(out) = scale;
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint64_t index = IndexOf(block, i);
      if (index >= a.elements) continue;
      const std::int32_t integer = Quantised(sums[i], inverse);
      out[sizeof(float) + i * 32 + Lane()] = static_cast<std::uint8_t>(integer);
      if (a.next != nullptr) a.next[index] = sums[i] - static_cast<float>(integer) * scale;
    }
  }
}

}  // namespace

cudaError_t EncodeInt8(const EncodeArguments& arguments, cudaStream_t stream) {
  return EncodeWith(&Int8, arguments, stream);
}

}  // namespace downpour::cuda
