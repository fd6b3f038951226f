#ifndef DOWNPOUR_TRAINER_CORE_CUTS_H_
#define DOWNPOUR_TRAINER_CORE_CUTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/time.h"

namespace downpour::core {

struct CutOptions {
  absl::Duration interval = absl::Minutes(10);    // from the beginning of one cut to that of the next
  absl::Duration first_retry = absl::Seconds(5);  // after a failure; doubled by each further one, up to the interval
  absl::Duration opening_deadline = absl::Seconds(20);  // for store and ps to be ready
  absl::Duration writing_deadline = absl::Minutes(20);  // from the seal to the manifest
};

// The coordinator's side of checkpoints: when a cut begins, and how far it is. Nobody is stopped for it:
//
//   opening    the store has the folder, every ps knows the number
//   moving     workers are told it; each that ends its update begins the next one with it
//   writing    every session has moved or is refused by every ps: no push of before comes any more, the ps write
//   committing the manifest is written
//
// One at a time; its numbers only rise. Not thread-safe.
class Cuts {
 public:
  explicit Cuts(CutOptions options) : options_(options) {}

  enum class Phase { kIdle, kOpening, kMoving, kWriting, kCommitting };
  Phase phase() const { return phase_; }

  // A number that is in use somewhere: the next is higher.
  void NoteNumber(std::uint32_t cut);
  // From now on the interval runs.
  void StartClock(Time now);
  // Somebody wants a cut of all that is applied by now. Returns what settled() has to reach.
  std::uint64_t Wish() { return ++wished_; }
  // Wishes up to this one have had a cut that began after them, written or failed.
  std::uint64_t settled() const { return settled_; }
  // Whether that cut was written.
  bool settled_well() const { return settled_well_; }

  // ---- what happens
  // Who has slices to write, by index. While no cut is open.
  void SetPs(const std::set<std::uint32_t>& ps);
  // Whether Begin is to be called: the interval is over, or somebody wishes it.
  bool Due(Time now) const;
  // `checkpoint`: of the number that next() gives.
  std::uint32_t next() const { return highest_ + 1; }
  void Begin(std::string checkpoint, Time now);
  void OnStoreReady();
  void OnStoreError(std::string why, Time now);
  void OnPsState(std::uint32_t ps, const v1::CutState& state, Time now);
  // A session is there, and has reached `cut`.
  void OnSession(std::uint64_t session, std::uint32_t cut);
  // It is over once every ps has confirmed `members_version`.
  void OnSessionEnded(std::uint64_t session, std::uint64_t members_version);
  // `committed`: that the manifest is in the store.
  void OnCommitted(const absl::Status& committed, Time now);
  // The layout changed. Not a failure: another one begins as soon as it can.
  void Abort(Time now);

  // Takes the phases as far as they go. `members_confirmed`: the version of the list of sessions that every ps has;
  // `members_version`: the newest one; `sessions` gives the live ones.
  void Step(Time now, std::uint64_t members_version, std::uint64_t members_confirmed,
            const std::function<std::vector<std::uint64_t>()>& sessions);

  // ---- what is to be done
  // For directives; nullopt: no cut is open.
  std::optional<v1::CutOrder> order() const;
  // Whether the ps has heard of it.
  bool Told(std::uint32_t ps) const;
  // For workers: what updates carry from now on.
  std::uint32_t announced() const { return announced_; }
  // What to commit, once: when every ps has written.
  bool commit_due() const { return phase_ == Phase::kCommitting && !commit_given_out_; }
  std::vector<v1::PsFiles> TakeFilesToCommit();
  Time next_timer() const;

  // ---- for people
  const std::string& checkpoint() const { return checkpoint_; }
  std::uint32_t number() const { return number_; }
  const std::string& error() const { return error_; }  // of the newest attempt; empty: it did not fail
  std::uint32_t written() const { return written_; }
  std::uint32_t failed() const { return failed_; }
  std::uint64_t extra_bytes() const;
  Time begun() const { return begun_; }
  // When workers were told: what they begin later is not in it.
  Time announced_at() const { return announced_at_; }

 private:
  // No push with a lower number comes any more.
  bool sealed() const { return phase_ == Phase::kWriting || phase_ == Phase::kCommitting; }
  void Enter(Phase phase, Time now);
  void Fail(std::string why, Time now);
  void End(bool well, Time now);

  CutOptions options_;
  Phase phase_ = Phase::kIdle;
  Time phase_since_ = absl::ZeroDuration();
  std::uint32_t highest_ = 0;    // in use somewhere
  std::uint32_t number_ = 0;     // of the newest cut here
  std::uint32_t announced_ = 0;  // to workers
  std::string checkpoint_;
  Time begun_ = absl::ZeroDuration();
  Time announced_at_ = absl::ZeroDuration();
  std::optional<Time> due_;
  std::uint64_t wished_ = 0, covered_ = 0, settled_ = 0;
  bool settled_well_ = false;
  bool store_ready_ = false;
  bool commit_given_out_ = false;
  std::map<std::uint32_t, v1::CutState> states_;  // by ps, of the open cut, as they have told
  std::set<std::uint64_t> lagging_;               // sessions that may still push with a lower number
  std::uint64_t fence_ = 0;                       // the version of the list of sessions that refuses all that ended so
  std::string error_;
  std::uint32_t written_ = 0, failed_ = 0, failed_in_a_row_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CUTS_H_
