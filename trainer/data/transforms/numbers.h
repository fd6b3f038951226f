#ifndef DOWNPOUR_TRAINER_DATA_TRANSFORMS_NUMBERS_H_
#define DOWNPOUR_TRAINER_DATA_TRANSFORMS_NUMBERS_H_

#include <cstdint>

#include "trainer/data/sample_source.h"

namespace downpour::data {

// Calls visit with a value of the C++ type that holds such elements.
template <typename Visit>
auto WithElementType(ElementType type, Visit&& visit) {
  switch (type) {
    case ElementType::kU8:
      return visit(std::uint8_t{});
    case ElementType::kI32:
      return visit(std::int32_t{});
    case ElementType::kI64:
      return visit(std::int64_t{});
    case ElementType::kF32:
      break;
  }
  return visit(float{});
}

// The one integer of a value of this type.
inline std::int64_t IntegerOf(const Value& value, ElementType type) {
  return WithElementType(type, [&value](auto element) {
    return static_cast<std::int64_t>(*reinterpret_cast<const decltype(element)*>(value.bytes.data()));
  });
}

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_TRANSFORMS_NUMBERS_H_
