#ifndef DOWNPOUR_TESTS_SIMULATION_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "downpour/v1/checkpoint.pb.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/reference.h"
#include "tests/simulation/world.h"
#include "trainer/core/applied_table.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

namespace downpour::simulation {

// Knows every push that was applied and every checkpoint that was written, and what must be true of them.
class Checks {
 public:
  // `skipped`: whether the update is one that takes no step.
  // `counts`: whether the slice has the counters; those that a search is about have not.
  // `lossy`: a codec leaves something of gradients out, so values are what was pushed, and do not count. Then the mode
  // stays as it is, with steps of `step_width` updates in mode SYNCHRONOUS, else 0.
  Checks(World* world, Disk* disk, std::function<bool(const core::UpdateId&)> skipped,
         std::function<bool(std::uint32_t)> counts, std::uint32_t step_width, bool lossy)
      : world_(world),
        disk_(disk),
        skipped_(std::move(skipped)),
        counts_(std::move(counts)),
        step_width_(step_width),
        lossy_(lossy) {}

  // ---- histories
  // A coordinator has the ps install it; by what was in the store it should begin so (URI; empty: initial values).
  void OnHistory(const HistoryKey& key, const std::string& expected) {
    std::optional<std::string>& first = histories_[key].expected;
    if (!first.has_value()) first = expected;
  }
  // A ps has taken up the view of a history, or another one with another mode: for each slice that it has. `beginning`
  // is the checkpoint that the view names.
  // `sequence`: the record that the slice is at then.
  void OnMode(const HistoryKey& key, const v1::View& view, const std::string& beginning, std::uint32_t slice,
              std::uint64_t sequence);
  // A ps has a view in which it is the primary of the slice, of which it has all up to this record. If another one was
  // before, what came behind it is undone, and nobody may have been told of it but of `lag` updates. `process`: whose
  // word counts from now on, unless somebody has a newer view. Whether it took the slice over.
  bool OnPrimary(const HistoryKey& key, std::uint32_t slice, std::uint64_t process, const v1::ViewStamp& stamp,
                 std::uint64_t sequence, std::uint64_t lag, const core::DataPlan& plan);
  // Whether what the process does with the slice counts: nobody took it over.
  bool Owns(const HistoryKey& key, std::uint32_t slice, std::uint64_t process);
  // A worker is told that the update is there.
  void OnAcknowledged(const HistoryKey& key, const std::string& beginning, const std::string& ps,
                      const core::FrameHeader& push, std::uint64_t lag);
  // `beginning`: as the ps' view says. `adds`: what is added to the value, where a codec is lossy.
  void OnApplied(const HistoryKey& key, const std::string& beginning, const std::string& ps, const core::DataPlan& plan,
                 const core::FrameHeader& push, std::vector<float> adds, std::uint64_t sequence);
  // It had been applied before, by this execution of the update or another one.
  void OnDuplicate(const HistoryKey& key, const core::FrameHeader& push, std::uint64_t sequence);
  // A ps applies, under `view`, an update of `step`, which was computed with values that had taken so many steps, by
  // slice.
  void CheckSteps(const HistoryKey& key, const v1::View& view, const std::string& where, const core::StepId& step,
                  const std::map<std::uint32_t, float>& steps);
  // A ps took it from the checkpoint `uri`, and holds this now.
  void OnRestored(const HistoryKey& key, const std::string& uri, const core::DataPlan& plan,
                  const v1::SliceLedger& table, const std::vector<float>& value);
  // What is told of the loss that the history began after.
  void OnLossTold(const HistoryKey& key, const v1::Restoration& restoration);

  // ---- cuts
  // A ps heard that no push with a lower number comes any more, while `sessions` gives those that may still push.
  void OnSealed(const HistoryKey& key, std::uint32_t cut, const std::function<std::set<std::uint64_t>()>& sessions);
  // Somebody tried to complete a checkpoint.
  void OnCommitted(const std::string& store, const v1::CheckpointManifest& manifest, const absl::Status& answer);
  std::uint64_t committed() const { return committed_; }
  std::uint64_t restored() const { return restored_; }  // slices
  std::uint64_t forked() const { return partial_; }     // updates that some slices of a checkpoint had

  // ---- the store
  // URI of the newest checkpoint that a job of `config` should begin with; empty: there is none.
  std::string NewestIntact(const v1::TrainingConfig& config) const;
  // Something happened to the disk between these two.
  void BeforeStop() { newest_before_ = NewestDurable(); }
  void AfterStop();

  // The slice of a history: its value is what all that its table has adds up to, where a codec is lossy. `beginning`:
  // URI of what the history began with, as far as nothing was applied in it.
  void CheckSum(const std::string& where, const HistoryKey& key, const std::string& beginning,
                const core::DataPlan& plan, const v1::SliceLedger& table, const std::vector<float>& value);
  // A slice at its ps: its value and its table are what was pushed to it.
  void CheckSlice(const HistoryKey& key, const std::string& where, const core::DataPlan& plan,
                  const v1::SliceLedger& table, const std::vector<float>& value);

 private:
  struct Push {
    std::uint32_t cut = 0;
    std::uint64_t session = 0;
    std::uint32_t epoch = 0;  // of the view that it was pushed under
    std::vector<float> adds;
    std::uint64_t sequence = 0;
  };
  struct Checkpoint {
    std::string store;
    v1::CheckpointManifest manifest;
    std::map<std::uint32_t, core::AppliedTable> tables;  // by slice
    std::map<std::uint32_t, std::uint64_t> versions;
    std::map<std::uint32_t, Reference> references;  // of the slices of which it is known
    // Where a codec is lossy, by slice: the value, what the updates of a step in the middle will add, and whether it
    // may have another execution of an update than the history had.
    std::map<std::uint32_t, std::vector<float>> values;
    std::map<std::uint32_t, std::map<core::UpdateId, std::vector<float>>> to_come;
    std::set<std::uint32_t> ambiguous;
    bool durable = false;  // somebody was told so
  };
  // A push that was applied, or one of before a cut that came again; or another mode.
  struct Event {
    std::optional<core::UpdateId> update;
    std::uint32_t cut = 0;
    std::uint32_t step_width = 0;
    std::uint64_t sequence = 0;  // the record that the slice was at then
    std::uint32_t epoch = 0;     // of the mode
  };
  struct Sequence {
    Reference first, now;
    std::vector<Event> events;                 // from the one to the other
    std::uint32_t first_epoch = 0, epoch = 0;  // of the mode that it was under first, and is now
    std::map<std::uint32_t, Reference> ended;  // of those before
  };
  struct History {
    std::optional<std::string> expected;
    std::string beginning;
    const Checkpoint* base = nullptr;                                 // that it began with
    std::map<std::uint32_t, std::map<core::UpdateId, Push>> applied;  // by slice; after the beginning
    std::map<std::uint32_t, Sequence> sequences;  // likewise; none of one that began with what nobody knows
    std::uint32_t epoch = 0;                      // of the newest view
    std::uint32_t sealed = 0;
    std::map<std::uint32_t, std::set<std::uint64_t>> live_at_seal;  // by cut: sessions
    std::set<std::uint32_t> ambiguous;  // slices: of an update another execution may be in a checkpoint
    bool loss_told = false;
    struct Owner {
      std::uint64_t process = 0;
      v1::ViewStamp stamp;
    };
    std::map<std::uint32_t, Owner> owners;                           // by slice
    std::map<std::uint32_t, std::set<core::UpdateId>> acknowledged;  // by slice
  };
  // What the update adds to the slice of the history; null: nobody knows.
  const std::vector<float>* Adds(const History& history, const Checkpoint* base, std::uint32_t slice,
                                 const core::UpdateId& update) const;
  // Whether the step of the update is not taken, as others of it are not in the table.
  bool Awaits(const core::DataPlan& plan, const core::AppliedTable& table, const core::UpdateId& update) const;
  // The newest first.
  using Order = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::string, std::string>;
  static Order OrderOf(const std::string& store, const v1::CheckpointManifest& manifest);
  const Checkpoint* Find(const std::string& uri) const;
  absl::Status Verify(const Checkpoint& checkpoint) const;
  void CheckSlice(const Reference* reference, const std::string& where, const core::DataPlan& plan,
                  const v1::SliceLedger& table, const std::vector<float>& value);
  // What cut `cut` has of the slice.
  std::optional<Reference> ReferenceAt(const HistoryKey& key, std::uint32_t slice, std::uint32_t cut,
                                       const core::DataPlan& plan);
  void CheckCut(const Checkpoint& checkpoint, const std::string& where, const core::DataPlan& plan);
  // What CheckSum needs of a slice to check histories that begin with the checkpoint.
  void Remember(const HistoryKey& key, const std::string& beginning, const core::DataPlan& plan,
                const core::AppliedTable& table, const core::SliceSnapshot& snapshot, Checkpoint* written);
  const Checkpoint* NewestDurable() const;

  World* world_;
  Disk* disk_;
  std::function<bool(const core::UpdateId&)> skipped_;
  std::function<bool(std::uint32_t)> counts_;
  std::uint32_t step_width_;
  bool lossy_;
  std::map<HistoryKey, History> histories_;
  std::map<Order, Checkpoint, std::greater<Order>> checkpoints_;
  const Checkpoint* newest_before_ = nullptr;
  std::uint64_t committed_ = 0, restored_ = 0, partial_ = 0;
};

// Calls visit(update) for each update of the plan.
template <typename Visit>
void ForEachUpdate(const core::DataPlan& plan, Visit&& visit) {
  for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
    for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
      for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
        visit(core::UpdateId{epoch, shard, group});
      }
    }
  }
}

std::string NameOf(const core::UpdateId& update);

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_CHECKS_H_
