// safetensors files: what is read has the values that its shapes promise.
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = downpour::checkpoint::ParseSafetensors({data, size});
  if (!file.ok()) return 0;
  for (const auto& [name, tensor] : file->tensors) {
    std::uint64_t values = 1;
    for (const std::int64_t extent : tensor.shape) values *= static_cast<std::uint64_t>(extent);
    downpour::fuzz::Require(tensor.values.size() == values, "the shape holds the values");
  }
  return 0;
}
