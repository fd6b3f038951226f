// CSV files: the first byte chooses the options, the rest is the file.
#include "tests/fuzz/sample_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/csv_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  downpour::data::CsvOptions options;
  options.header = (data[0] & 1) != 0;
  options.delimiter = (data[0] & 2) != 0 ? ';' : ',';
  if ((data[0] & 4) != 0) options.columns["a"] = {downpour::data::CsvType::kCategorical, {}};
  downpour::data::MemoryFiles files;
  files.Put("data", std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  downpour::fuzz::RequireSound(OpenCsv(files, "data", options));
  return 0;
}
