#ifndef DOWNPOUR_TRAINER_DATA_ARROW_READERS_H_
#define DOWNPOUR_TRAINER_DATA_ARROW_READERS_H_

#include "trainer/data/open_dataset.h"

namespace downpour::data {

// All that Apache Arrow reads (files/arrow_files.h, formats/parquet_source.h).
ArrowReaders MakeArrowReaders();

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_ARROW_READERS_H_
