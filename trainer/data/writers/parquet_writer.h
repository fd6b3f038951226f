#ifndef DOWNPOUR_TRAINER_DATA_WRITERS_PARQUET_WRITER_H_
#define DOWNPOUR_TRAINER_DATA_WRITERS_PARQUET_WRITER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {

// data.parquet, in row groups of some MiB. Text is a string, a value with a shape is fixed-size lists of fixed-size
// lists. kInvalidArgument: a column whose values differ in shape and are no text.
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeParquetWriter(const WriterOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_WRITERS_PARQUET_WRITER_H_
