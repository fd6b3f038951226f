// Arrays of NumPy, and archives of them.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/npy_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::NpyOptions options;
  options.most_inflated_bytes = std::uint64_t{16} << 20;
  downpour::data::MemoryFiles files;
  files.Put("data", std::string(reinterpret_cast<const char*>(data), size));
  downpour::fuzz::RequireSound(OpenNpy(files, "data", options));
  return 0;
}
