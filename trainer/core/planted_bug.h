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
  kLatePushNotInSnapshot,      // a push of before the cut that comes after the snapshot is applied to the slice alone
  kJoinerBeginsWithOldCut,     // a worker that joins while a cut is open is not told its number
  kGenerationIgnored,          // the ps takes pushes of another generation
  kBitmapFreedEarly,           // retiring a data shard that is not complete forgets what of it was applied
  kManifestBeforeData,         // who writes the files of a ps says so before they are there
  kEndedSessionsKept,          // the ps takes in who came since a version of the list, but not who is over
  kStalenessNotBounded,        // BoundedStaleness: nobody waits for the slowest
  kIdleSessionsCount,          // BoundedStaleness: a worker without a training lease is waited for
  kStepsNotAwaited,            // Synchronous: an update begins with whatever is there
  kValueBeforeNotKept,         // Synchronous: a slice that is a step ahead has only the value of its own step
  kStepSumLost,                // Synchronous: what has arrived of a step is not in the snapshot
  kCommandRepeated,            // Sandblaster: a slice carries a command on vectors out each time that it hears it
  kCommandWhileCutOpens,       // Sandblaster: the next evaluation begins with the number of before the cut
  kNextPointNotAwaited,        // Sandblaster: data shards are given out before every slice has the next point
  kResidualNotForgotten,       // codecs: what may be applied is left to come again with a later update
  kResidualLeftBehind,         // codecs: a worker that is asked to leave goes on as before
  kEvaluationsForgotten,       // a coordinator that begins anew counts evaluations from the beginning
  kModeBeforeTaken,            // the ps takes pushes that were computed in the mode before
  kTableNotReplicated,         // standbys: a copy comes without the table of applied updates
  kDuplicateBeforeStandby,     // standbys: DUPLICATE is said of what the standby does not hold yet
  kJoiningPromoted,            // standbys: one that is still being copied becomes the primary
  kFrozenThawed,               // moves: a frozen slice is taken up again after a while
  kMajoritySkipped,            // a restarted coordinator goes on with whatever ps it has
  kTwoCoordinatorsObeyed,      // the ps heeds an older coordinator as well
  kVerdictNotToldAgain,        // the worker takes it that a ps has heard the verdict whose push it denied
  kOwnStateKept,               // rings: whoever has some state keeps it, though others have a newer one
  kStepDoneWhenOwnIs,          // rings: a step that has failed counts for whoever has all of its own
  kHealedFromAnybody,          // rings: the last rank that has a state gives it to all, whether it is the newest or not
  kCopiesNotUpdated,           // rings: whoever has a copy of a part of the optimizer's state does not hear of its sums
  kShareOfBeforeKept,          // rings: what a member had of the optimizer's state before a division counts for ever
  kGatheredAtAnyWait,  // rings: a divided state comes together where some may go on before others have heard of it
  kSamplesOfAbortedDropped,  // rings: the updates of a step that has failed are recorded as skipped
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PLANTED_BUG_H_
