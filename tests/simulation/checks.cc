#include "tests/simulation/checks.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/simulation/process.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/core/layout.h"
#include "trainer/core/step_id.h"

namespace downpour::simulation {
namespace {

constexpr double kRounding = 1e-3;    // of sums of some hundred means
constexpr double kReordering = 0.01;  // of sums in another order

}  // namespace

std::string NameOf(const core::UpdateId& update) {
  return absl::StrCat("update ", update.dataset_epoch, "/", update.data_shard, "/", update.group);
}

// ---- histories

void Checks::OnMode(const HistoryKey& key, const v1::View& view, const std::string& beginning, std::uint32_t slice,
                    std::uint64_t at) {
  const core::DataPlan plan = *core::DataPlan::Create(view.data());
  const std::uint32_t width = core::StepWidth(view);
  History& history = histories_[key];
  const std::uint32_t epoch = view.mode_epoch();
  history.epoch = std::max(history.epoch, epoch);
  if (const auto known = history.sequences.find(slice); known != history.sequences.end()) {
    Sequence& sequence = known->second;
    if (sequence.epoch >= epoch) return;  // whoever had the slice before has taken it up
    sequence.ended.emplace(std::exchange(sequence.epoch, epoch), sequence.now);
    sequence.now.GoOn(width, plan);
    // The manifest of a cut that was sealed in the mode before may be on its way.
    sequence.events.push_back({std::nullopt, history.sealed, width, at, epoch});
    return;
  }
  Reference first;
  if (!beginning.empty()) {
    const Checkpoint* const written = Find(beginning);
    const auto reference =
        written == nullptr ? std::map<std::uint32_t, Reference>::const_iterator() : written->references.find(slice);
    // What a disk that lies has damaged may be loaded in part.
    if (written == nullptr || reference == written->references.end()) return;
    first = reference->second;
  }
  first.GoOn(width, plan);
  history.sequences.emplace(slice, Sequence{first, first, {}, epoch, epoch, {}});
}

bool Checks::OnPrimary(const HistoryKey& key, std::uint32_t slice, std::uint64_t process, const v1::ViewStamp& stamp,
                       std::uint64_t sequence, std::uint64_t lag, const core::DataPlan& plan) {
  History& history = histories_[key];
  const auto [owner, first] = history.owners.try_emplace(slice);
  if (!first && core::CompareStamps(stamp, owner->second.stamp) <= 0) return false;
  owner->second.stamp = stamp;
  if (std::exchange(owner->second.process, process) == process || first) return false;
  std::uint64_t told = 0;
  if (const auto applied = history.applied.find(slice); applied != history.applied.end()) {
    std::erase_if(applied->second, [&](const auto& entry) {
      if (entry.second.sequence <= sequence) return false;
      if (history.acknowledged[slice].erase(entry.first) != 0 && ++told > lag) {
        world_->Violation(absl::StrCat("slice ", slice, ": ", NameOf(entry.first), ", record ", entry.second.sequence,
                                       ", was acknowledged, and went with its primary: the next one has ", sequence));
      }
      return true;
    });
  }
  const auto known = history.sequences.find(slice);
  if (known == history.sequences.end()) return true;
  Sequence& rest = known->second;
  if (std::erase_if(rest.events, [sequence](const Event& event) { return event.sequence > sequence; }) == 0) {
    return true;
  }
  rest.now = rest.first;
  rest.epoch = rest.first_epoch;
  for (const Event& event : rest.events) {
    if (!event.update.has_value()) {
      rest.now.GoOn(event.step_width, plan);
      rest.epoch = event.epoch;
    } else if (!rest.now.Contains(*event.update)) {
      rest.now.Apply(*event.update, skipped_(*event.update), plan);
    }
  }
  return true;
}

bool Checks::Owns(const HistoryKey& key, std::uint32_t slice, std::uint64_t process) {
  return histories_[key].owners[slice].process == process;
}

void Checks::OnAcknowledged(const HistoryKey& key, const std::string& beginning, const std::string& ps,
                            const core::FrameHeader& push, std::uint64_t lag) {
  History& history = histories_[key];
  history.acknowledged[push.slice].insert(push.update);
  if (lag > 0) return;
  const auto applied = history.applied.find(push.slice);
  if (applied != history.applied.end() && applied->second.count(push.update) != 0) return;
  const Checkpoint* const base = Find(beginning);
  if (base == nullptr && !beginning.empty()) return;  // nobody knows what it began with
  if (base != nullptr) {
    const auto table = base->tables.find(push.slice);
    if (table != base->tables.end() && table->second.Contains(push.update)) return;
  }
  world_->Violation(absl::StrCat(ps, " says that slice ", push.slice, " has ", NameOf(push.update),
                                 ", and who owns it does not have it"));
}

std::optional<Reference> Checks::ReferenceAt(const HistoryKey& key, std::uint32_t slice, std::uint32_t cut,
                                             const core::DataPlan& plan) {
  const std::map<std::uint32_t, Sequence>& sequences = histories_[key].sequences;
  const auto sequence = sequences.find(slice);
  if (sequence == sequences.end()) return std::nullopt;
  Reference reference = sequence->second.first;
  for (const Event& event : sequence->second.events) {
    if (event.cut >= cut) continue;
    if (!event.update.has_value()) {
      reference.GoOn(event.step_width, plan);
    } else if (!reference.Contains(*event.update)) {
      reference.Apply(*event.update, skipped_(*event.update), plan);
    }
  }
  return reference;
}

void Checks::CheckSteps(const HistoryKey& key, const v1::View& view, const std::string& where, const core::StepId& step,
                        const std::map<std::uint32_t, float>& steps) {
  for (const auto& [slice, sequence] : histories_[key].sequences) {
    // A slice elsewhere may be in the next mode already.
    const auto ended = sequence.ended.find(view.mode_epoch());
    const Reference& reference = ended == sequence.ended.end() ? sequence.now : ended->second;
    const auto had = steps.find(slice);
    const std::uint64_t expected = reference.StepsBefore(step);
    if (!reference.HasAllBefore(step) || had == steps.end() ||
        static_cast<std::uint64_t>(std::lround(had->second)) != expected) {
      return world_->Violation(absl::StrCat(where, ", of step ", step.dataset_epoch, "/", step.band, "/", step.group,
                                            ", was computed with a value of slice ", slice, " after ",
                                            had == steps.end() ? -1 : had->second, " steps, expected ", expected,
                                            reference.HasAllBefore(step) ? "" : ", of which some are not there"));
    }
  }
}

void Checks::OnApplied(const HistoryKey& key, const std::string& beginning, const std::string& ps,
                       const core::DataPlan& plan, const core::FrameHeader& push, std::vector<float> adds,
                       std::uint64_t at) {
  History& history = histories_[key];
  if (history.applied.empty()) {
    history.beginning = beginning;
    history.base = Find(beginning);
    if (history.base != nullptr) history.ambiguous = history.base->ambiguous;
    // Files of a ps without slices are verified and not loaded: where a disk lies, one that is bad so may be used.
    const bool usable = disk_->lies() && !beginning.empty();
    if (history.expected.value_or(beginning) != beginning && !usable) {
      world_->Violation(absl::StrCat("generation ", key.second, " began with '", beginning, "', the newest was '",
                                     *history.expected, "'"));
    }
  }
  const auto where = [&] { return absl::StrCat(ps, ": slice ", push.slice, ": ", NameOf(push.update)); };
  if (push.cut < history.sealed) {
    world_->Violation(
        absl::StrCat(where(), " with number ", push.cut, " was applied after cut ", history.sealed, " was complete"));
  }
  Push applied{push.cut, push.session, push.epoch, std::move(adds), at};
  bool fresh = history.applied[push.slice].emplace(push.update, std::move(applied)).second;
  if (history.base != nullptr) {
    const auto table = history.base->tables.find(push.slice);
    fresh = fresh && (table == history.base->tables.end() || !table->second.Contains(push.update));
  }
  if (!fresh) world_->Violation(absl::StrCat(where(), " was applied twice"));
  const auto sequence = history.sequences.find(push.slice);
  if (sequence == history.sequences.end()) return;
  sequence->second.events.push_back({push.update, push.cut, 0, at, 0});
  sequence->second.now.Apply(push.update, skipped_(push.update), plan);
}

void Checks::OnDuplicate(const HistoryKey& key, const core::FrameHeader& push, std::uint64_t at) {
  History& history = histories_[key];
  if (const auto sequence = history.sequences.find(push.slice); sequence != history.sequences.end()) {
    sequence->second.events.push_back({push.update, push.cut, 0, at, 0});
  }
  const auto slice = history.applied.find(push.slice);
  if (slice == history.applied.end()) return;
  const auto found = slice->second.find(push.update);
  if (found == slice->second.end() || push.cut >= found->second.cut) return;
  found->second.cut = push.cut;
  found->second.session = push.session;
  found->second.epoch = push.epoch;
  history.ambiguous.insert(push.slice);
}

void Checks::OnRestored(const HistoryKey& key, const std::string& uri, const core::DataPlan& plan,
                        const v1::SliceLedger& table, const std::vector<float>& value) {
  ++restored_;
  const std::string where = absl::StrCat("generation ", key.second, " out of ", uri, ": slice ", table.slice());
  CheckSlice(key, where, plan, table, value);
  const Checkpoint* const written = Find(uri);
  if (written == nullptr) {
    // Where a disk lies it may be one that was damaged when it was written, whose other files are.
    if (!disk_->lies()) world_->Violation(absl::StrCat(where, ": nobody wrote it"));
    return;
  }
  const absl::StatusOr<core::AppliedTable> restored = core::AppliedTable::FromLedger(plan, table);
  const auto expected = written->tables.find(table.slice());
  if (!restored.ok() || expected == written->tables.end()) {
    return world_->Violation(absl::StrCat(where, ": its table is not sound"));
  }
  bool same =
      table.version() == written->versions.at(table.slice()) && (!lossy_ || value == written->values.at(table.slice()));
  ForEachUpdate(*core::DataPlan::Create(written->manifest.data()), [&](const core::UpdateId& update) {
    same = same && (!plan.Contains(update) || restored->Contains(update) == expected->second.Contains(update));
  });
  if (!same) world_->Violation(absl::StrCat(where, ": holds something else than was written"));
}

void Checks::OnLossTold(const HistoryKey& key, const v1::Restoration& restoration) {
  History& history = histories_[key];
  if (!restoration.has_lost_updates() || std::exchange(history.loss_told, true)) return;
  // Of the histories before: nothing is known to be lost that never was applied.
  std::uint64_t most = 0;
  for (const auto& [other, before] : histories_) {
    if (other.first != key.first || other.second >= key.second) continue;
    for (const auto& [slice, applied] : before.applied) {
      const std::uint64_t begun = before.base == nullptr ? 0 : before.base->versions.at(slice);
      most = std::max<std::uint64_t>(most, begun + applied.size());
    }
    if (before.expected.has_value() && before.applied.empty()) {
      const Checkpoint* const begun = Find(*before.expected);
      if (begun == nullptr && disk_->lies()) return;  // its files are of nothing that anybody remembers to have written
      if (begun == nullptr) continue;
      for (const auto& [slice, version] : begun->versions) most = std::max(most, version);
    }
  }
  if (restoration.lost_updates() + std::min(restoration.updates(), most) > most) {
    world_->Violation(absl::StrCat("generation ", key.second, " says that ", restoration.lost_updates(), " behind ",
                                   restoration.updates(), " are lost, at most ", most, " were applied"));
  }
}

void Checks::CheckSlice(const HistoryKey& key, const std::string& where, const core::DataPlan& plan,
                        const v1::SliceLedger& table, const std::vector<float>& value) {
  const std::map<std::uint32_t, Sequence>& sequences = histories_[key].sequences;
  const auto sequence = sequences.find(table.slice());
  CheckSlice(sequence == sequences.end() ? nullptr : &sequence->second.now, where, plan, table, value);
}

void Checks::CheckSlice(const Reference* reference, const std::string& where, const core::DataPlan& plan,
                        const v1::SliceLedger& table, const std::vector<float>& value) {
  const absl::StatusOr<core::AppliedTable> applied = core::AppliedTable::FromLedger(plan, table);
  if (!applied.ok()) return world_->Violation(absl::StrCat(where, ": ", applied.status().ToString()));
  std::uint64_t updates = 0, skipped = 0;
  ForEachUpdate(plan, [&](const core::UpdateId& update) {
    if (!applied->Contains(update)) return;
    ++updates;
    skipped += skipped_(update) ? 1 : 0;
    if (reference == nullptr || reference->Contains(update)) return;
    world_->Violation(absl::StrCat(where, ": its table has ", NameOf(update), ", which nobody pushed"));
  });
  if (table.version() != updates || table.skipped() != skipped) {
    world_->Violation(absl::StrCat(where, ": ", table.version(), " updates of which ", table.skipped(),
                                   " were skipped, its table has ", updates, " and ", skipped));
  }
  if (reference == nullptr) {
    if (!disk_->lies()) world_->Violation(absl::StrCat(where, ": nobody knows what it began with"));
    return;
  }
  if (reference->updates() != updates) {
    world_->Violation(
        absl::StrCat(where, ": its table has ", updates, " updates, ", reference->updates(), " were applied"));
  }
  if (lossy_ || !counts_(table.slice())) return;
  const auto steps = static_cast<std::uint64_t>(std::lround(value[kCounter]));
  if (steps != reference->steps()) {
    world_->Violation(absl::StrCat(where, ": it has taken ", steps, " steps, expected ", reference->steps()));
  }
  std::vector<double> samples = reference->samples();
  samples.resize(value.size() - kSamples);
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    if (std::abs(value[kSamples + sample] - samples[sample]) < kRounding) continue;
    return world_->Violation(absl::StrCat(where, ": sample ", sample, " counted ", value[kSamples + sample],
                                          ", expected ", samples[sample]));
  }
}

bool Checks::Awaits(const core::DataPlan& plan, const core::AppliedTable& table, const core::UpdateId& update) const {
  if (step_width_ == 0) return false;
  bool whole = true;
  core::ForEachUpdateOf(core::StepOf(update, step_width_), step_width_, plan,
                        [&](const core::UpdateId& other) { whole = whole && table.Contains(other); });
  return !whole;
}

const std::vector<float>* Checks::Adds(const History& history, const Checkpoint* base, std::uint32_t slice,
                                       const core::UpdateId& update) const {
  if (const auto applied = history.applied.find(slice); applied != history.applied.end()) {
    const auto found = applied->second.find(update);
    if (found != applied->second.end()) return &found->second.adds;
  }
  if (base == nullptr || base->to_come.count(slice) == 0) return nullptr;
  const auto found = base->to_come.at(slice).find(update);
  return found == base->to_come.at(slice).end() ? nullptr : &found->second;
}

void Checks::CheckSum(const std::string& where, const HistoryKey& key, const std::string& beginning,
                      const core::DataPlan& plan, const v1::SliceLedger& table, const std::vector<float>& value) {
  const History& history = histories_[key];
  const std::string& begun = history.applied.empty() ? beginning : history.beginning;
  const Checkpoint* const base = Find(begun);
  const absl::StatusOr<core::AppliedTable> applied = core::AppliedTable::FromLedger(plan, table);
  const std::uint32_t slice = table.slice();
  if (!lossy_ || disk_->lies() || !applied.ok() || history.ambiguous.count(slice) != 0) return;
  if (!begun.empty() && base == nullptr) return;
  if (base != nullptr && history.applied.empty() && base->ambiguous.count(slice) != 0) return;
  std::vector<double> expected(value.size());
  if (base != nullptr) expected.assign(base->values.at(slice).begin(), base->values.at(slice).end());
  bool known = true;
  ForEachUpdate(plan, [&](const core::UpdateId& update) {
    if (!applied->Contains(update) || skipped_(update) || Awaits(plan, *applied, update)) return;
    const std::vector<float>* const adds = Adds(history, base, slice, update);
    const bool in_base = base != nullptr && base->tables.at(slice).Contains(update);
    if (adds == nullptr) {
      known = known && in_base;
      return;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += (*adds)[i];
  });
  if (!known) return world_->Violation(absl::StrCat(where, ": has an update that nobody pushed"));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i == kHistory || std::abs(value[i] - expected[i]) < kReordering) continue;
    return world_->Violation(
        absl::StrCat(where, ": value ", i, " is ", value[i], ", what was pushed makes it ", expected[i]));
  }
}

// ---- cuts

void Checks::OnSealed(const HistoryKey& key, std::uint32_t cut,
                      const std::function<std::set<std::uint64_t>()>& sessions) {
  History& history = histories_[key];
  if (history.live_at_seal.count(cut) != 0) return;
  history.live_at_seal[cut] = sessions();
  history.sealed = std::max(history.sealed, cut);
}

void Checks::OnCommitted(const std::string& store, const v1::CheckpointManifest& base, const absl::Status& answer) {
  const std::string name = checkpoint::CheckpointName(base);
  const std::string where = absl::StrCat(store, "/", name);
  const std::unique_ptr<checkpoint::Store> files = disk_->Open(store);
  const auto wrong = [&](const absl::Status& status) {
    if (answer.ok() && !disk_->lies()) world_->Violation(absl::StrCat(where, " is bad: ", status.ToString()));
  };
  const absl::StatusOr<v1::CheckpointManifest> manifest = checkpoint::ReadManifest(*files, name);
  if (!manifest.ok()) return wrong(manifest.status());
  if (absl::Status whole = checkpoint::Verify(*files, name); !whole.ok()) {
    wrong(whole);
    // What a disk that lies has damaged may be a file without slices, which nobody loads.
    if (!disk_->lies()) return;
  }
  const auto [position, fresh] = checkpoints_.try_emplace(OrderOf(store, *manifest));
  Checkpoint& written = position->second;
  if (answer.ok()) written.durable = true;
  if (!fresh) return;
  written.store = store;
  written.manifest = *manifest;
  const core::DataPlan plan = *core::DataPlan::Create(manifest->data());
  std::vector<std::uint32_t> slices;
  std::set<double> commands;
  for (const v1::PsFiles& of_ps : manifest->files()) {
    slices.insert(slices.end(), of_ps.slices().begin(), of_ps.slices().end());
  }
  const absl::Status read =
      checkpoint::ReadSlices(*files, name, *manifest, slices, [&](const core::SliceSnapshot& snapshot) {
        const HistoryKey key{manifest->job_uid(), manifest->generation()};
        const std::string of_slice = absl::StrCat(where, ": slice ", snapshot.number);
        const std::optional<Reference> reference = ReferenceAt(key, snapshot.number, manifest->cut(), plan);
        CheckSlice(reference.has_value() ? &*reference : nullptr, of_slice, plan, snapshot.table, *snapshot.value);
        if (reference.has_value()) written.references.emplace(snapshot.number, *reference);
        absl::StatusOr<core::AppliedTable> table = core::AppliedTable::FromLedger(plan, snapshot.table);
        if (!table.ok()) return table.status();
        if (lossy_) {
          CheckSum(of_slice, key, manifest->resumed_from(), plan, snapshot.table, *snapshot.value);
          Remember(key, manifest->resumed_from(), plan, *table, snapshot, &written);
        }
        written.tables.emplace(snapshot.number, *std::move(table));
        if (!counts_(snapshot.number)) {
          const std::vector<core::StateScalar>& scalars = snapshot.optimizer.scalars;
          commands.insert(scalars.size() > 1 ? scalars[1].value : 0);
        }
        written.versions[snapshot.number] = snapshot.table.version();
        return absl::OkStatus();
      });
  if (!read.ok()) {
    checkpoints_.erase(position);
    return wrong(read);
  }
  if (commands.size() > 1) {
    world_->Violation(absl::StrCat(where, ": a command on vectors is on some slices only"));
  }
  ++committed_;
  CheckCut(written, where, plan);
}

void Checks::Remember(const HistoryKey& key, const std::string& beginning, const core::DataPlan& plan,
                      const core::AppliedTable& table, const core::SliceSnapshot& snapshot, Checkpoint* written) {
  const History& history = histories_[key];
  const Checkpoint* const base = history.applied.empty() ? Find(beginning) : history.base;
  const std::set<std::uint32_t>& ambiguous =
      history.applied.empty() && base != nullptr ? base->ambiguous : history.ambiguous;
  if (ambiguous.count(snapshot.number) != 0) written->ambiguous.insert(snapshot.number);
  written->values[snapshot.number] = *snapshot.value;
  ForEachUpdate(plan, [&](const core::UpdateId& update) {
    if (!table.Contains(update) || skipped_(update) || !Awaits(plan, table, update)) return;
    const std::vector<float>* const adds = Adds(history, base, snapshot.number, update);
    if (adds != nullptr) written->to_come[snapshot.number][update] = *adds;
  });
}

void Checks::CheckCut(const Checkpoint& checkpoint, const std::string& where, const core::DataPlan& plan) {
  const std::uint32_t cut = checkpoint.manifest.cut();
  const History& history = histories_[{checkpoint.manifest.job_uid(), checkpoint.manifest.generation()}];
  // A history in which nothing was pushed has not been looked at yet.
  const Checkpoint* const base = history.applied.empty() ? Find(checkpoint.manifest.resumed_from()) : history.base;
  const auto live = history.live_at_seal.find(cut);
  ForEachUpdate(plan, [&](const core::UpdateId& update) {
    std::size_t on = 0;
    const Push* by_live = nullptr;
    for (const auto& [slice, table] : checkpoint.tables) {
      const bool there = table.Contains(update);
      const bool begun = base != nullptr && base->tables.at(slice).Contains(update);
      const Push* push = nullptr;
      if (const auto applied = history.applied.find(slice); applied != history.applied.end()) {
        const auto found = applied->second.find(update);
        if (found != applied->second.end()) push = &found->second;
      }
      const bool expected = begun || (push != nullptr && push->cut < cut);
      if (there != expected) {
        world_->Violation(absl::StrCat(where, ": slice ", slice, there ? " has " : " lacks ", NameOf(update),
                                       push == nullptr ? "" : absl::StrCat(", pushed with number ", push->cut)));
      }
      on += there ? 1 : 0;
      const bool may_push = push != nullptr && live != history.live_at_seal.end() && live->second.count(push->session);
      // What was under way when the mode changed is done again, by whomever.
      if (there && may_push && push->cut < cut && push->epoch == history.epoch) by_live = push;
    }
    if (on == 0 || on == checkpoint.tables.size()) return;
    ++partial_;
    if (by_live != nullptr) {
      world_->Violation(absl::StrCat(where, ": ", NameOf(update), " is on some slices only, and session ",
                                     by_live->session, ", which pushed it, was not over"));
    }
  });
}

// ---- the store

Checks::Order Checks::OrderOf(const std::string& store, const v1::CheckpointManifest& manifest) {
  return {manifest.cut(), manifest.generation(), manifest.incarnation(), manifest.job_uid(), store};
}

const Checks::Checkpoint* Checks::Find(const std::string& uri) const {
  if (uri.empty()) return nullptr;
  for (const auto& [order, checkpoint] : checkpoints_) {
    if (absl::StrCat(checkpoint.store, "/", checkpoint::CheckpointName(checkpoint.manifest)) == uri) return &checkpoint;
  }
  return nullptr;
}

absl::Status Checks::Verify(const Checkpoint& checkpoint) const {
  return checkpoint::Verify(*disk_->Open(checkpoint.store), checkpoint::CheckpointName(checkpoint.manifest));
}

std::string Checks::NewestIntact(const v1::TrainingConfig& config) const {
  const auto newest = [this](const std::string& store, const std::string& job_uid) -> std::string {
    for (const auto& [order, checkpoint] : checkpoints_) {
      if (checkpoint.store != store || (!job_uid.empty() && checkpoint.manifest.job_uid() != job_uid)) continue;
      if (Verify(checkpoint).ok()) return absl::StrCat(store, "/", checkpoint::CheckpointName(checkpoint.manifest));
    }
    return "";
  };
  std::string chosen = newest(config.checkpoint().uri(), config.job_uid());
  if (chosen.empty() && config.checkpoint().resume() == v1::RESUME_LATEST) {
    chosen = newest(config.checkpoint().uri(), "");
  }
  if (chosen.empty() && config.checkpoint().resume() == v1::RESUME_FROM) {
    chosen = newest(config.checkpoint().resume_uri(), "");
  }
  return chosen;
}

const Checks::Checkpoint* Checks::NewestDurable() const {
  for (const auto& [order, checkpoint] : checkpoints_) {
    if (checkpoint.durable && Verify(checkpoint).ok()) return &checkpoint;
  }
  return nullptr;
}

void Checks::AfterStop() {
  if (newest_before_ == nullptr || disk_->lies()) return;
  // What was newest stays, unless a newer one was completed before.
  const absl::Status whole = Verify(*newest_before_);
  if (whole.ok()) return;
  const Order before = OrderOf(newest_before_->store, newest_before_->manifest);
  for (const auto& [order, checkpoint] : checkpoints_) {
    if (order > before && Verify(checkpoint).ok()) return;
  }
  world_->Violation(absl::StrCat("the machine stopped, and a checkpoint that was written is bad: ", whole.ToString()));
}

}  // namespace downpour::simulation
