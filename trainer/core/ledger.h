#ifndef DOWNPOUR_TRAINER_CORE_LEDGER_H_
#define DOWNPOUR_TRAINER_CORE_LEDGER_H_

#include <cstdint>
#include <map>

#include "trainer/core/bitmap.h"

namespace downpour::core {

// What is applied for good: all of the dataset epochs before the watermark, and of later ones these data shards. Of an
// epoch that is named other data shards may be applied in part; of one that is not, nothing is.
struct Ledger {
  std::uint32_t watermark = 0;
  std::map<std::uint32_t, Bitmap> retired = {};  // by dataset epoch; bit i: data shard i
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_LEDGER_H_
