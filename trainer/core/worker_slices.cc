#include "trainer/core/worker_slices.h"

#include <algorithm>

namespace downpour::core {

// ---- the view

void WorkerSlices::Begin(const std::vector<Slice>& slices, const v1::View& view) {
  entries_.assign(slices.size(), Entry());
  for (std::uint32_t number = 0; number < size(); ++number) {
    entries_[number].slice = slices[number];
    entries_[number].buffer = view.tensors(static_cast<int>(slices[number].tensor)).kind() == v1::BUFFER;
    entries_[number].ps = view.layout(static_cast<int>(number)).primary();
  }
}

void WorkerSlices::Drop() {
  for (Entry& entry : entries_) {
    entry.fresh = entry.pull_in_flight = entry.initial_in_flight = entry.initial_done = false;
    entry.push = Push::kUnready;
    entry.version = 0;  // a history of the same number may have begun anew
    entry.value_of.reset();
    entry.step = StepId();
  }
}

void WorkerSlices::Reroute(const v1::View& view, const std::set<std::uint32_t>& gone) {
  for (std::uint32_t number = 0; number < size(); ++number) {
    Entry& entry = entries_[number];
    const std::uint32_t ps = view.layout(static_cast<int>(number)).primary();
    if (ps == entry.ps && gone.count(ps) == 0) continue;
    entry.ps = ps;
    entry.pull_in_flight = entry.initial_in_flight = false;
    // Who has it now has to hear how far this worker is, or others would wait for it there.
    if (view.mode() == v1::BOUNDED_STALENESS) entry.fresh = false;
    PushAgain(entry);
  }
}

void WorkerSlices::PushAgain(Entry& entry) {
  if (entry.push != Push::kSent) return;
  entry.push = Push::kReady;
  entry.maybe_applied = true;
}

// ---- values

void WorkerSlices::InitialiseAgain() {
  for (Entry& entry : entries_) entry.initial_done = false;
}

void WorkerSlices::Renew() {
  for (Entry& entry : entries_) entry.fresh = false;
}

void WorkerSlices::RenewBehind(std::uint64_t clock) {
  for (Entry& entry : entries_) entry.fresh = entry.fresh && entry.clock >= clock;
}

void WorkerSlices::RenewAllBut(const StepId& step) {
  for (Entry& entry : entries_) entry.fresh = entry.value_of == step;
}

bool WorkerSlices::fresh() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.fresh; });
}

StepId WorkerSlices::first_step() const {
  const auto first = std::min_element(entries_.begin(), entries_.end(),
                                      [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return first == entries_.end() ? StepId() : first->step;
}

// ---- gradients

void WorkerSlices::BeginUpdate() {
  for (Entry& entry : entries_) {
    entry.push = Push::kUnready;
    entry.maybe_applied = false;
    entry.computed_version = entry.version;
  }
}

std::size_t WorkerSlices::SetReady(std::uint32_t tensor) {
  std::size_t ready_bytes = 0;
  for (Entry& entry : entries_) {
    if (entry.slice.tensor == tensor) entry.push = Push::kReady;
    if (entry.push == Push::kReady) ready_bytes += entry.slice.bytes();
  }
  return ready_bytes;
}

void WorkerSlices::SetAllReady() {
  for (Entry& entry : entries_) {
    if (entry.push == Push::kUnready) entry.push = Push::kReady;
  }
}

bool WorkerSlices::sent() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.push == Push::kSent || entry.push == Push::kDone; });
}

bool WorkerSlices::done() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.push == Push::kDone; });
}

bool WorkerSlices::MayBeApplied(std::uint32_t number) const {
  const Entry& entry = entries_[number];
  return entry.push == Push::kSent || (entry.push != Push::kDone && entry.maybe_applied);
}

// ---- exchanges

std::map<std::uint32_t, std::vector<PsExchanges::Part>> WorkerSlices::Parts(
    absl::FunctionRef<bool(const Entry&)> wanted) const {
  std::map<std::uint32_t, std::vector<PsExchanges::Part>> by_ps;
  for (std::uint32_t number = 0; number < size(); ++number) {
    const Entry& entry = entries_[number];
    if (wanted(entry)) by_ps[entry.ps].push_back({number, entry.slice.bytes()});
  }
  return by_ps;
}

void WorkerSlices::OnLost(std::uint32_t number, PsExchanges::Kind kind, bool current) {
  Entry& entry = entries_[number];
  if (kind == PsExchanges::Kind::kPull) entry.pull_in_flight = false;
  if (kind == PsExchanges::Kind::kInitialise) entry.initial_in_flight = false;
  if (kind == PsExchanges::Kind::kPush && current) PushAgain(entry);
}

}  // namespace downpour::core
