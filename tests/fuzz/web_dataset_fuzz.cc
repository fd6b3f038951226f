// Samples in a tar archive.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/web_dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::MemoryFiles files;
  files.Put("a.tar", {reinterpret_cast<const char*>(data), size});
  const downpour::data::ImageOptions image = {.channels = 1, .most_pixels = 1 << 14};
  downpour::fuzz::RequireSound(downpour::data::OpenWebDataset(files, "a.tar", {.image = image}));
  downpour::fuzz::RequireSound(
      downpour::data::OpenWebDataset(files, "a.tar", {.image = image, .extensions = {"cls", "txt"}, .classes = 10}));
  return 0;
}
