// CIFAR-10 and CIFAR-100 in their binary versions.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::MemoryFiles files;
  const std::string input(reinterpret_cast<const char*>(data), size);
  files.Put("set/data_batch_1.bin", input);
  files.Put("set/train.bin", input);
  files.Put("set/batches.meta.txt", input.substr(0, 200));
  downpour::fuzz::RequireSound(downpour::data::OpenCifar10(files, "set", {}));
  files.Remove("set/batches.meta.txt");
  downpour::fuzz::RequireSound(downpour::data::OpenCifar10(files, "set", {}));
  downpour::fuzz::RequireSound(downpour::data::OpenCifar100(files, "set", {}));
  return 0;
}
