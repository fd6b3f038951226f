#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_STORED_TYPE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_STORED_TYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer/data/fields.h"

namespace downpour::data {

// As files hold numbers; sample_source.h says what each is given in.
enum class StoredType { kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64 };

std::size_t BytesOf(StoredType type);
ElementType ElementTypeOf(StoredType type);

// `to` holds as many elements of ElementTypeOf(type) as `from` holds of `type`. kDataLoss: a value that is beyond the
// range, or a bool that is neither 0 nor 1; says which element, what was found and what is expected.
absl::Status Convert(StoredType type, bool big_endian, absl::Span<const std::uint8_t> from, absl::Span<std::byte> to);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_STORED_TYPE_H_
