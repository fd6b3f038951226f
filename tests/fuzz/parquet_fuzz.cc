// Parquet files: what is read has the bytes that its shape promises. libparquet itself is a library that was built
// without instrumentation: what is looked for is how our reader takes what comes of it.
#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/parquet_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using downpour::fuzz::Require;
  downpour::data::MemoryFiles files;
  files.Put("a.parquet", std::string(reinterpret_cast<const char*>(data), size));
  downpour::data::ParquetOptions options;
  options.binary = true;
  options.memory_bytes = 1 << 20;
  const auto source = downpour::data::OpenParquet(files, "a.parquet", options);
  if (!source.ok()) return 0;
  Require((*source)->size() > 0, "there are rows");
  for (std::int64_t row = 0; row < std::min<std::int64_t>((*source)->size(), 20); ++row) {
    const auto sample = (*source)->Read(row);
    if (!sample.ok()) continue;
    Require(sample->size() == (*source)->columns().size(), "a value for each column");
    for (std::size_t i = 0; i < sample->size(); ++i) {
      std::uint64_t bytes = downpour::data::BytesOf((*source)->columns()[i].type);
      for (const std::int64_t extent : (*sample)[i].shape) bytes *= static_cast<std::uint64_t>(extent);
      Require((*sample)[i].bytes.size() == bytes, "the shape holds the bytes");
    }
  }
  return 0;
}
