// Records of tf.train.Example. The input is a file of them, and the data of a record too: the fuzzer does not hit upon
// checksums.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/record_builder.h"
#include "trainer/data/formats/tf_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using Kind = downpour::data::TfRecordFeature::Kind;
  downpour::data::MemoryFiles files;
  const std::string input(reinterpret_cast<const char*>(data), size);
  files.Put("file", input);
  files.Put("record", downpour::data::Record(input));
  const downpour::data::TfRecordOptions options = {
      .image = {.channels = 1, .most_pixels = 1 << 14},
      .features = {{"label", Kind::kIntegers, {}, 10},
                   {"box", Kind::kIntegers, {downpour::data::kAnyExtent, 2}},
                   {"raw", Kind::kBytes, {downpour::data::kAnyExtent}}}};
  for (const char* path : {"file", "record"}) {
    downpour::fuzz::RequireSound(downpour::data::OpenTfRecord(files, path, {.image = options.image}));
    downpour::fuzz::RequireSound(downpour::data::OpenTfRecord(files, path, options));
  }
  return 0;
}
