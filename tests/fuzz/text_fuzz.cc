// Lines of text, plain, labelled and as a file in a folder.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/text_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using downpour::data::TextLayout;
  downpour::data::MemoryFiles files;
  files.Put("data/class/a.txt", std::string(reinterpret_cast<const char*>(data), size));
  for (const TextLayout layout : {TextLayout::kLines, TextLayout::kLabelledLines, TextLayout::kFolders}) {
    downpour::data::TextOptions options;
    options.layout = layout;
    downpour::fuzz::RequireSound(OpenText(files, "data", options));
  }
  return 0;
}
