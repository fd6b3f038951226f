#ifndef DOWNPOUR_TRAINER_CORE_PHASE_H_
#define DOWNPOUR_TRAINER_CORE_PHASE_H_

namespace downpour::core {

// How far the coordinator is with the history at hand. A ps process that is new leads back to the first.
enum class Phase {
  kGathering,      // not every ps has come
  kAwaitingModel,  // none of them holds anything, and no worker has come
  kSeeking,        // nobody knows yet what a new history begins with
  kInstalling,     // some ps has not confirmed the view
  kInitialising,   // some ps has a slice without a value
  kTraining,
  kSwitching,  // likewise, and some ps has not confirmed another mode
  kFinishing,  // all is applied; the last tasks
  kDone,
  kFailed,
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PHASE_H_
