#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_PARQUET_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_PARQUET_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

struct ParquetOptions {
  // Those that are read, in this order; empty: all of them, in the order of the file. Others may be of any type.
  std::vector<std::string> columns;
  // Columns of bytes are read, as kU8 [kAnyExtent]: images as they are encoded, for one. Otherwise they are refused.
  bool binary = false;
  // About what the decoded row groups take that are kept for the next reads. A row group that is larger in its file,
  // uncompressed, is refused.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
};

// Apache Parquet: a file, or all files below a directory whose names end with ".parquet" and do not begin with '_',
// one after another by their paths. They have the same columns. A sample is a row:
//
//   bool                                  kU8 [], 0 or 1
//   integers and floats                   as sample_source.h has it
//   string, or a dictionary of strings    text
//   fixed_size_list of numbers or bools   an array; of such lists likewise
//   binary                                by option
//
// All others (lists whose length differs, structs, maps, decimals, times) are refused. A null makes its sample a broken
// one; in the place of a whole list it may break its row group, most of which Arrow cannot read. Parquet is read in row
// groups: the first sample of one that is read decodes it, others wait for that, and the groups that were used last are
// kept.
//
// kInvalidArgument: columns that cannot be read, that differ from file to file, or that are not there. kDataLoss: a
// file is broken. kNotFound: no file. Else errors are those of `files`, which must outlive the source.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenParquet(const Files& files, const std::string& path,
                                                          const ParquetOptions& options = {});

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_PARQUET_SOURCE_H_
