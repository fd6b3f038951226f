// Folders of images: each line is the path of a file, a blank and what the file holds.
#include <string>

#include "absl/strings/str_split.h"
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/image_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::MemoryFiles files;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  for (const absl::string_view line : absl::StrSplit(input, '\n')) {
    const std::pair<std::string, std::string> file = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (!file.first.empty()) files.Put("set/" + file.first, file.second);
  }
  const downpour::data::ImageOptions image = {.channels = 1, .most_pixels = 1 << 14};
  downpour::fuzz::RequireSound(downpour::data::OpenImageFolder(files, "set", {.image = image}));
  downpour::fuzz::RequireSound(
      downpour::data::OpenImageFolder(files, "set", {.image = image, .class_names = {"a", "b"}}));
  return 0;
}
