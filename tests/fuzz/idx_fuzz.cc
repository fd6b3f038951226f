// idx files: what is read has the values that its shape promises.
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const int dimensions : {1, 3}) {
    const auto array = downpour::data::ParseIdx({data, size}, dimensions);
    if (!array.ok()) continue;
    std::uint64_t values = 1;
    for (const std::int64_t extent : array->shape) values *= static_cast<std::uint64_t>(extent);
    downpour::fuzz::Require(array->shape.size() == static_cast<std::size_t>(dimensions), "the dimensions asked for");
    downpour::fuzz::Require(array->values.size() == values, "the shape holds the values");
  }
  return 0;
}
