#ifndef DOWNPOUR_TRAINER_CHECKPOINT_RETENTION_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

// Which checkpoints may go. Pure.
namespace downpour::checkpoint {

struct Retention {
  std::string job_uid;     // of the job that tidies up: no other job's go
  std::uint32_t keep = 0;  // the newest; 0: 3
  std::string keep_best;   // a metric, or "Loss"; empty: none is kept for what it is worth
  std::string in_use;      // that the generation began with, say: stays; empty: none
};

struct Removal {
  std::string name;
  std::string reason;  // for people
};

// `checkpoints` as ListCheckpoints has them, the newest first; the oldest of what is to go comes first.
std::vector<Removal> ToRemove(const std::vector<ListedCheckpoint>& checkpoints, const Retention& retention);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_RETENTION_H_
