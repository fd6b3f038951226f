#include "trainer/data/arrow_readers.h"

#include "trainer/data/files/arrow_files.h"
#include "trainer/data/formats/parquet_source.h"

namespace downpour::data {

ArrowReaders MakeArrowReaders() {
  ArrowReaders readers;
  readers.is_remote = &IsRemote;
  readers.open_files = [](const std::string& uri) { return OpenRemoteFiles(uri); };
  readers.open_parquet = [](const Files& files, const std::string& path, const std::vector<std::string>& columns) {
    ParquetOptions options;
    options.columns = columns;
    return OpenParquet(files, path, options);
  };
  return readers;
}

}  // namespace downpour::data
