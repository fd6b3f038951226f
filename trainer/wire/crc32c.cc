#include "trainer/wire/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

namespace downpour::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected: bit i is the coefficient of x^(31 - i)

constexpr std::uint32_t TimesX(std::uint32_t a) { return (a >> 1) ^ ((a & 1u) != 0 ? kPolynomial : 0); }

// Slicing by eight: kTables[k][b] is the register after byte b and then k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

std::uint32_t LoadLittleEndian32(const std::uint8_t* data) {
  return std::uint32_t{data[0]} | std::uint32_t{data[1]} << 8 | std::uint32_t{data[2]} << 16 |
         std::uint32_t{data[3]} << 24;
}

}  // namespace

std::uint32_t Crc32cPortable(absl::Span<const std::uint8_t> bytes, std::uint32_t crc) {
  crc = ~crc;
  const std::uint8_t* data = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; data += 8, left -= 8) {
    const std::uint32_t low = LoadLittleEndian32(data) ^ crc;
    const std::uint32_t high = LoadLittleEndian32(data + 4);
    crc = kTables[7][low & 0xFFu] ^ kTables[6][(low >> 8) & 0xFFu] ^ kTables[5][(low >> 16) & 0xFFu] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFFu] ^ kTables[2][(high >> 8) & 0xFFu] ^
          kTables[1][(high >> 16) & 0xFFu] ^ kTables[0][high >> 24];
  }
  for (; left != 0; ++data, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFFu];
  return ~crc;
}

#if defined(__x86_64__)

namespace {

// x^power modulo the polynomial, by squaring.
constexpr std::uint32_t Multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

constexpr std::uint32_t PowerOfX(std::size_t power) {
  std::uint32_t result = 0x80000000u;  // x^0
  std::uint32_t square = 0x40000000u;  // x^1
  for (; power != 0; power >>= 1) {
    if ((power & 1u) != 0) result = Multiply(result, square);
    square = Multiply(square, square);
  }
  return result;
}

// The register after `kBytes` zero bytes: a carry-less multiplication by x^(8 kBytes), whose 64-bit product the crc32
// instruction reduces. That reduction multiplies by x^32, and the product of two reflected words is one bit short: the
// constant makes up for both.
template <std::size_t kBytes>
__attribute__((target("sse4.2,pclmul"))) inline std::uint64_t AfterZeros(std::uint64_t crc) {
  constexpr std::uint32_t kFactor = PowerOfX(8 * kBytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                                               _mm_cvtsi64_si128(static_cast<long long>(kFactor)), 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

inline std::uint64_t Load64(const std::uint8_t* data) {
  std::uint64_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// The crc32 instruction has a latency of three cycles and a throughput of one: three independent runs of kRun bytes
// keep it busy. Long runs let the processor prefetch what is not in its caches: over twice as fast as runs of 2 KiB.
template <std::size_t kRun>
__attribute__((target("sse4.2,pclmul"))) inline std::uint64_t ThreeRuns(const std::uint8_t*& data, std::size_t& left,
                                                                        std::uint64_t crc) {
  for (; left >= 3 * kRun; data += 3 * kRun, left -= 3 * kRun) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kRun; i += 8) {
      crc = _mm_crc32_u64(crc, Load64(data + i));
      second = _mm_crc32_u64(second, Load64(data + kRun + i));
      third = _mm_crc32_u64(third, Load64(data + 2 * kRun + i));
    }
    crc = AfterZeros<2 * kRun>(crc) ^ AfterZeros<kRun>(second) ^ third;
  }
  return crc;
}

}  // namespace

bool HasAcceleratedCrc32c() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }

__attribute__((target("sse4.2,pclmul"))) std::uint32_t Crc32cAccelerated(absl::Span<const std::uint8_t> bytes,
                                                                         std::uint32_t crc) {
  const std::uint8_t* data = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t state = ~crc;
  state = ThreeRuns<64 * 1024>(data, left, state);
  state = ThreeRuns<4 * 1024>(data, left, state);
  state = ThreeRuns<256>(data, left, state);
  for (; left >= 8; data += 8, left -= 8) state = _mm_crc32_u64(state, Load64(data));
  std::uint32_t narrow = static_cast<std::uint32_t>(state);
  for (; left != 0; ++data, --left) narrow = _mm_crc32_u8(narrow, *data);
  return ~narrow;
}

#else

bool HasAcceleratedCrc32c() { return false; }

std::uint32_t Crc32cAccelerated(absl::Span<const std::uint8_t> bytes, std::uint32_t crc) {
  return Crc32cPortable(bytes, crc);
}

#endif

std::uint32_t Crc32c(absl::Span<const std::uint8_t> bytes, std::uint32_t crc) {
  static const auto implementation = HasAcceleratedCrc32c() ? Crc32cAccelerated : Crc32cPortable;
  return implementation(bytes, crc);
}

}  // namespace downpour::wire
