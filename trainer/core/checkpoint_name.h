#ifndef DOWNPOUR_TRAINER_CORE_CHECKPOINT_NAME_H_
#define DOWNPOUR_TRAINER_CORE_CHECKPOINT_NAME_H_

#include <cstdint>
#include <string>

namespace downpour::core {

// `cut-0000000012-g1-i1-00112233`: sorts by the number of the cut; no other coordinator gives the same. `job_uid` has
// 32 hexadecimal digits, with dashes or without.
std::string CheckpointName(std::uint32_t cut, std::uint64_t generation, std::uint32_t incarnation,
                           const std::string& job_uid);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CHECKPOINT_NAME_H_
