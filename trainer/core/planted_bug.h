#ifndef DOWNPOUR_TRAINER_CORE_PLANTED_BUG_H_
#define DOWNPOUR_TRAINER_CORE_PLANTED_BUG_H_

namespace downpour::core {

// Defects that the simulation's counter test must catch: the proof that it can fail. Always kNone outside of it.
enum class PlantedBug {
  kNone,
  kNoDeduplication,            // the ps applies an update that it has applied before
  kDeduplicationLostAtRetire,  // retiring a data shard forgets its bitmap without keeping the bit
  kSessionNotChecked,          // the ps takes pushes from ended sessions
  kRetiredOnWorkersWord,       // the coordinator retires a lease when the worker says so
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PLANTED_BUG_H_
