#ifndef DOWNPOUR_TRAINER_CORE_JOB_CHECKPOINTS_H_
#define DOWNPOUR_TRAINER_CORE_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/cuts.h"
#include "trainer/core/restore.h"
#include "trainer/core/time.h"

namespace downpour::core {

// What the coordinator wants of the store, for its shell to carry out; answered exactly once, in any order.
struct StoreCall {
  enum class Kind {
    kFind,    // what checkpoints there are
    kBegin,   // claim the checkpoint's folder, which must not be there
    kCommit,  // complete the manifest out of its files' own tables, check it, write it; then remove what is too old
  };
  std::uint64_t call = 0;
  Kind kind = Kind::kFind;
  v1::CheckpointManifest manifest;  // kBegin, kCommit: as far as it is known; always whose it is
  std::string in_use;               // kCommit: the checkpoint that the generation began with; must not be removed
};

struct StoreReply {
  absl::Status status;
  FoundCheckpoints found;           // kFind
  v1::CheckpointManifest manifest;  // kCommit: as it was written
  std::uint64_t bytes = 0;          // kCommit: of all of its files
  std::string warning;              // what went wrong without harm to it, for people
};

// What the coordinator knows of the job's checkpoints: the cut that is open, the newest one, and which one a history
// begins with. Without a store it never opens one, and a history begins with initial values. Not thread-safe.
class JobCheckpoints {
 public:
  JobCheckpoints(const v1::TrainingConfig& config, std::uint32_t incarnation);

  bool enabled() const { return config_.has_checkpoint(); }
  Cuts& cuts() { return cuts_; }
  const Cuts& cuts() const { return cuts_; }

  // ---- the store
  std::vector<StoreCall> TakeStoreCalls();
  void OnStoreReply(std::uint64_t call, StoreReply reply, Time now);

  // ---- what a history begins with
  struct Beginning {
    absl::Status status;                        // kUnavailable: not known yet, and why; others: there is none to be had
    std::optional<FoundCheckpoint> checkpoint;  // OK: nullopt: initial values
  };
  // Looks again into the store, unless it has since the last history began. To be called again until it is known.
  Beginning Seek(Time now);
  // A history begins so. `updates`: that were applied in the one before, if it is known.
  void BeginHistory(const std::optional<FoundCheckpoint>& checkpoint, std::optional<std::uint64_t> updates, Time now);
  // A history of an earlier coordinator goes on, that began with `source`, if with a checkpoint.
  void ResumeHistory(const v1::RestoreSource& source, Time now);
  // A ps could not load the checkpoint of this history: the next Seek gives another.
  void OnRestoreError(const std::string& why);

  // Why they try again and again; empty: they do not.
  void OnRestoreWaits(std::string why) { restore_waits_ = std::move(why); }
  // This history begins with a checkpoint.
  bool restored() const { return !beginning_uri_.empty(); }
  // What is waited for, for people: until Seek knows, and then while the ps load.
  std::string AwaitedOfStore() const;
  std::string AwaitedOfPs() const;

  // ---- cuts
  // A wish of whoever runs the job; as often as wanted, another text is another wish.
  void OnRequest(const std::string& request);
  // The training is over: one more cut. True once that has ended, well or not.
  bool FinalCutEnded();
  struct Situation {
    v1::ViewStamp stamp;
    std::uint64_t members_version = 0;    // the newest
    std::uint64_t members_confirmed = 0;  // that every ps has
    bool may_begin = true;                // a cut that is due
    std::function<std::vector<std::uint64_t>()> sessions;
    // Everything of the manifest but files and ledger.
    std::function<void(v1::CheckpointManifest*)> describe;
  };
  // While the view is in force and the parameters have values.
  void Step(Time now, const Situation& situation);
  Time next_timer() const;
  // One begins as soon as nothing is in its way.
  bool CutIsDue(Time now) const { return enabled() && numbers_known_ && cuts_.Due(now); }

  void Report(Time now, v1::ProgressReply* progress) const;

 private:
  StoreCall& AddCall(StoreCall::Kind kind);
  // Whose the open cut is.
  void Identify(const v1::ViewStamp& stamp, v1::CheckpointManifest* manifest) const;
  // Whether the store has been looked through since the last history began; asks for it.
  bool Found(Time now);

  v1::TrainingConfig config_;
  std::uint32_t incarnation_;
  Cuts cuts_;
  std::vector<StoreCall> calls_;
  std::uint64_t next_call_ = 1;

  enum class Search { kIdle, kAsked, kKnown };
  bool numbers_known_ = false;  // the next cut is newer than all that is in the store
  Search search_ = Search::kIdle;
  std::uint64_t find_call_ = 0;
  Time find_again_ = absl::ZeroDuration();
  absl::Duration find_pause_ = absl::ZeroDuration();
  std::string find_error_;
  FoundCheckpoints found_;
  std::map<std::string, std::string> unusable_;  // by URI

  std::uint64_t begin_call_ = 0, commit_call_ = 0;
  std::optional<v1::Restoration> restoration_;
  std::string in_use_;  // name of the checkpoint of this history, if it lies in the job's own folder
  std::string beginning_uri_;
  std::string restore_waits_;

  // The newest of this coordinator's life, or the one that its history began with.
  std::string newest_uri_;
  std::uint64_t newest_updates_ = 0;
  std::uint64_t newest_bytes_ = 0;
  absl::Duration newest_took_;
  std::optional<Time> newest_at_;  // when its cut was told to the workers
  std::string warning_;

  std::string request_;
  std::uint64_t request_wish_ = 0;
  std::optional<std::uint64_t> final_wish_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_JOB_CHECKPOINTS_H_
