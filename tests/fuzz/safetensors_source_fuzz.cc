// safetensors files as data.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/safetensors_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::MemoryFiles files;
  files.Put("data", std::string(reinterpret_cast<const char*>(data), size));
  downpour::fuzz::RequireSound(OpenSafetensors(files, "data", {}));
  return 0;
}
