#include "trainer/core/data_leases.h"

#include <algorithm>
#include <utility>

namespace downpour::core {

DataLeases::DataLeases(const DataPlan& plan, std::set<std::uint32_t> ps, const Ledger& ledger, PlantedBug bug)
    : plan_(plan),
      ps_(std::move(ps)),
      bug_(bug),
      watermark_(std::min(ledger.watermark, plan.epochs())),
      end_(plan.epochs(), 0) {
  for (const auto& [epoch, retired] : ledger.retired) {
    if (epoch < watermark_ || epoch >= plan_.epochs()) continue;
    std::vector<Shard>& shards = EpochOf(epoch).shards;
    for (std::uint32_t number = 0; number < shards.size(); ++number) {
      if (retired.Test(number)) Retire({epoch, number}, shards[number]);
    }
  }
}

DataLeases::Epoch& DataLeases::EpochOf(std::uint32_t dataset_epoch) {
  const auto [position, inserted] = epochs_.try_emplace(dataset_epoch);
  Epoch& epoch = position->second;
  if (inserted) FitToEnd(dataset_epoch, epoch);
  return epoch;
}

void DataLeases::FitToEnd(std::uint32_t dataset_epoch, Epoch& epoch) {
  std::uint32_t size = plan_.shards_in_epoch(dataset_epoch);
  if (dataset_epoch == end_.first) size = std::min(size, end_.second);
  if (dataset_epoch > end_.first) size = 0;
  auto number = static_cast<std::uint32_t>(epoch.shards.size());
  for (std::uint32_t dropped = size; dropped < number; ++dropped) {
    Release({dataset_epoch, dropped}, epoch.shards[dropped]);
  }
  epoch.shards.resize(size);
  for (; number < size; ++number) {
    epoch.shards[number].incomplete_ps = ps_count();
    SetFree({dataset_epoch, number});
  }
}

void DataLeases::SetEnd(const ShardKey& end) {
  end_ = end.second < plan_.shards_in_epoch(end.first) ? end : ShardKey(end.first + 1, 0);
  for (auto& [number, epoch] : epochs_) FitToEnd(number, epoch);
}

void DataLeases::AssumeLeased() {
  // It gave out data shards of two epochs from its watermark on, which may be higher: not every ps may have heard of
  // that. But what it rests on is in the ledger.
  std::uint32_t watermark = watermark_;
  for (auto epoch = epochs_.find(watermark);
       epoch != epochs_.end() && epoch->second.retired == epoch->second.shards.size();
       epoch = epochs_.find(watermark)) {
    ++watermark;
  }
  AssumeBegun({watermark + 2, 0});
}

bool DataLeases::done() const {
  if (watermark_ < end_.first) return false;
  if (end_.second == 0) return true;
  const auto last = epochs_.find(watermark_);
  return last != epochs_.end() && last->second.retired == end_.second;
}

void DataLeases::SetFree(const ShardKey& key) {
  std::set<std::uint32_t>& free = epochs_.at(key.first).free;
  free.insert(free.end(), key.second);
  if (plan_.has_windows()) affinity_.AddFree(key.first, key.second, plan_.WindowOf(key.first, key.second));
}

void DataLeases::SetNotFree(const ShardKey& key) {
  epochs_.at(key.first).free.erase(key.second);
  if (plan_.has_windows()) affinity_.RemoveFree(key.first, key.second, plan_.WindowOf(key.first, key.second));
}

void DataLeases::SetHolder(const ShardKey& key, std::uint32_t worker) {
  if (plan_.has_windows()) affinity_.SetHolder(plan_.WindowOf(key.first, key.second), worker);
}

DataLeases::Shard* DataLeases::Find(const ShardKey& key) {
  const auto epoch = epochs_.find(key.first);
  if (epoch == epochs_.end() || key.second >= epoch->second.shards.size()) return nullptr;
  return &epoch->second.shards[key.second];
}

void DataLeases::Lease(const ShardKey& key, std::uint64_t session, std::uint64_t lease) {
  SetNotFree(key);
  AssumeBegun({key.first, key.second + 1});
  Shard& shard = epochs_.at(key.first).shards[key.second];
  shard.state = State::kLeased;
  shard.session = session;
  shard.lease = lease;
  ++leased_;
  held_[session].insert(key);
}

// Whatever it was, it is not on any list afterwards; but of those that are fenced, which find out themselves.
void DataLeases::Release(const ShardKey& key, Shard& shard) {
  asked_.erase(key);
  SetNotFree(key);
  if (shard.state == State::kInspecting) --inspecting_;
  if (shard.state != State::kLeased) return;
  --leased_;
  TakeAway(key, shard.session);
  if (shard.backup_session != 0) TakeAway(key, shard.backup_session);
  shard.backup_session = shard.backup_lease = 0;
}

void DataLeases::TakeAway(const ShardKey& key, std::uint64_t session) {
  const auto held = held_.find(session);
  held->second.erase(key);
  if (held->second.empty()) held_.erase(held);
}

void DataLeases::Inspect(const ShardKey& key, Shard& shard) {
  Release(key, shard);
  shard.state = State::kInspecting;
  ++inspecting_;
  shard.inspected = shard.complete;
  shard.inspected.resize(ps_slots());
  shard.uninspected_ps = shard.incomplete_ps;
  shard.done = Bitmap(plan_.updates_in_shard(key.first, key.second), true);
  asked_.insert(key);
}

void DataLeases::Retire(const ShardKey& key, Shard& shard) {
  Release(key, shard);
  shard.state = State::kRetired;
  retired_updates_ += plan_.updates_in_shard(key.first, key.second);
  ++epochs_.at(key.first).retired;
}

void DataLeases::Add(const ShardKey& key, const Shard& shard, std::uint64_t session, v1::WorkerSyncReply* reply) const {
  v1::Lease* lease = reply->add_leases();
  lease->set_lease(LeaseOf(shard, session));
  lease->set_kind(v1::TASK_TRAIN);
  lease->mutable_shard()->set_dataset_epoch(key.first);
  lease->mutable_shard()->set_shard(key.second);
  Bitmap done = shard.done;
  if (shard.next > 0) {
    if (done.size() == 0) done = Bitmap(plan_.updates_in_shard(key.first, key.second), false);
    for (std::uint32_t group = 0; group < shard.next; ++group) done.Set(group);
  }
  lease->set_done(done.bytes());
}

// ---- of sessions

void DataLeases::Adopt(const v1::HeldLease& held, std::uint64_t session, std::uint32_t worker) {
  const ShardKey key{held.shard().dataset_epoch(), held.shard().shard()};
  if (!plan_.Contains({key.first, key.second, 0}) || key.first < watermark_) return;
  const std::vector<Shard>& shards = EpochOf(key.first).shards;
  if (key.second >= shards.size() || shards[key.second].state != State::kFree) return;
  Lease(key, session, held.lease());
  SetHolder(key, worker);
}

void DataLeases::InspectFree() {
  for (auto& [number, epoch] : epochs_) {
    for (const std::uint32_t shard : std::set<std::uint32_t>(epoch.free)) Inspect({number, shard}, epoch.shards[shard]);
  }
}

std::uint32_t DataLeases::List(std::uint64_t session, const std::set<std::uint64_t>& all_sent,
                               v1::WorkerSyncReply* reply) {
  const auto held = held_.find(session);
  if (held == held_.end()) return 0;
  std::uint32_t working = 0;
  for (const ShardKey& key : std::set<ShardKey>(held->second)) {
    ++looked_at_;
    Shard& shard = *Find(key);
    if (all_sent.count(LeaseOf(shard, session)) == 0) {
      ++working;
    } else if (bug_ == PlantedBug::kRetiredOnWorkersWord) {
      Retire(key, shard);
      continue;
    } else {
      asked_.insert(key);
    }
    Add(key, shard, session, reply);
  }
  return working;
}

// The next epoch begins when the one before has nothing left to give, not when it is done: nobody idles at its end.
std::uint32_t DataLeases::EndOfGrants() const {
  return std::min({watermark_ + 2, end_.first + (end_.second > 0 ? 1 : 0), end_of_grants_});
}

bool DataLeases::HasFree() {
  for (std::uint32_t number = watermark_; number < EndOfGrants(); ++number) {
    if (!EpochOf(number).free.empty()) return true;
  }
  return false;
}

void DataLeases::Grant(std::uint64_t session, std::uint32_t count, LeaseNumbers& numbers, v1::WorkerSyncReply* reply,
                       std::uint32_t worker) {
  const std::uint32_t end = EndOfGrants();
  for (std::uint32_t number = watermark_; number < end && count > 0; ++number) {
    Epoch& epoch = EpochOf(number);
    for (; count > 0 && !epoch.free.empty(); --count) {
      ++looked_at_;
      const ShardKey key{number, affinity_.Choose(number, worker).value_or(*epoch.free.begin())};
      Lease(key, session, numbers.Next());
      SetHolder(key, worker);
      Add(key, epoch.shards[key.second], session, reply);
    }
  }
}

void DataLeases::Report(const v1::HeldLease& held, std::uint64_t session) {
  const ShardKey key{held.shard().dataset_epoch(), held.shard().shard()};
  Shard* const shard = Find(key);
  if (shard == nullptr || shard->state != State::kLeased) return;
  if (shard->session != session && shard->backup_session != session) return;
  shard->next = std::max(shard->next, std::min(held.next(), plan_.updates_in_shard(key.first, key.second)));
}

void DataLeases::GrantInBands(std::uint64_t session, std::uint32_t width, std::uint32_t share, bool starves,
                              LeaseNumbers& numbers, v1::WorkerSyncReply* reply) {
  constexpr int kBands = 3;  // to be confirmed, under way and next
  front_ = std::max(front_, ShardKey(watermark_, 0));
  while (front_.first < EndOfGrants()) {
    const Epoch& epoch = EpochOf(front_.first);
    while (front_.second < epoch.shards.size() && epoch.shards[front_.second].state == State::kRetired) ++front_.second;
    if (front_.second < epoch.shards.size()) break;
    front_ = {front_.first + 1, 0};
  }
  bool of_front = false;
  ShardKey band(front_.first, front_.second / width * width);
  for (int number = 0; number < kBands && band.first < EndOfGrants(); ++number) {
    Epoch& epoch = EpochOf(band.first);
    const std::uint32_t end = EndOfBand(band, width);
    std::uint32_t holds = 0;
    for (std::uint32_t shard = band.second; shard < end; ++shard) {
      ++looked_at_;
      holds += WorksOn(epoch.shards[shard], {band.first, shard}, session) ? 1 : 0;
    }
    std::uint32_t may = share > holds ? share - holds : 0;
    if (number == 0 && starves) may = std::max(may, 1U);
    for (auto shard = epoch.free.lower_bound(band.second); may > 0 && shard != epoch.free.end() && *shard < end;
         --may) {
      const ShardKey key{band.first, *shard++};
      Lease(key, session, numbers.Next());
      Add(key, epoch.shards[key.second], session, reply);
      ++holds;
    }
    if (number == 0) of_front = holds > 0;
    band = end < epoch.shards.size() ? ShardKey(band.first, end) : ShardKey(band.first + 1, 0);
  }
  if (starves && !of_front) {
    spares_.insert(session);
  } else {
    spares_.erase(session);
  }
  if (starves && (!of_front || spares_.empty())) GrantBackup(session, width, numbers, reply);
}

void DataLeases::BeginMode() {
  spares_.clear();
  for (auto& [number, epoch] : epochs_) {
    for (std::uint32_t index = 0; index < epoch.shards.size(); ++index) {
      Shard& shard = epoch.shards[index];
      if (shard.state != State::kLeased) continue;
      const ShardKey key{number, index};
      asked_.erase(key);
      if (shard.backup_session != 0) TakeAway(key, shard.backup_session);
      shard.backup_session = shard.backup_lease = 0;
      shard.next = 0;  // it may be gone: whoever has it says so again
    }
  }
}

bool DataLeases::WorksOn(const Shard& shard, const ShardKey& key, std::uint64_t session) const {
  if (shard.state != State::kLeased || (shard.session != session && shard.backup_session != session)) return false;
  return shard.next < plan_.updates_in_shard(key.first, key.second);
}

std::uint32_t DataLeases::EndOfBand(const ShardKey& key, std::uint32_t width) {
  const std::uint64_t end = (std::uint64_t{key.second} / width + 1) * width;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(end, EpochOf(key.first).shards.size()));
}

// Late is who has not done what others of the band have, once half of these wait for it.
void DataLeases::GrantBackup(std::uint64_t session, std::uint32_t width, LeaseNumbers& numbers,
                             v1::WorkerSyncReply* reply) {
  if (front_.first >= EndOfGrants()) return;
  Epoch& epoch = EpochOf(front_.first);
  const std::uint32_t begin = front_.second / width * width;
  const std::uint32_t end = EndOfBand(front_, width);
  std::vector<std::uint32_t> next;  // of each data shard of the band; UINT32_MAX: it is done
  next.reserve(end - begin);
  std::uint32_t most = 0;
  for (std::uint32_t shard = begin; shard < end; ++shard) {
    ++looked_at_;
    const Shard& one = epoch.shards[shard];
    const std::uint32_t updates = plan_.updates_in_shard(front_.first, shard);
    const bool done = one.state == State::kRetired || one.next >= updates;
    next.push_back(done ? UINT32_MAX : one.next);
    most = std::max(most, done ? updates : one.next);
  }
  std::uint32_t ahead = 0;
  std::optional<std::uint32_t> late;
  for (std::uint32_t shard = begin; shard < end; ++shard) {
    const Shard& one = epoch.shards[shard];
    if (next[shard - begin] >= most) {
      ++ahead;
    } else if (one.state == State::kLeased && one.backup_session == 0 && one.session != session &&
               (!late.has_value() || next[shard - begin] < next[*late - begin])) {
      late = shard;
    }
  }
  if (!late.has_value()) return;
  std::uint32_t others = 0;  // that the late one does not hold
  for (std::uint32_t shard = begin; shard < end; ++shard) {
    const Shard& one = epoch.shards[shard];
    others += one.state == State::kLeased && one.session == epoch.shards[*late].session ? 0 : 1;
  }
  if (2 * ahead < others) return;
  spares_.erase(session);
  LeaseTwice({front_.first, *late}, session, numbers, reply);
}

void DataLeases::GrantOneOfTheLast(std::uint64_t session, LeaseNumbers& numbers, v1::WorkerSyncReply* reply) {
  if (watermark_ >= EndOfGrants() || HasFree()) return;
  std::optional<ShardKey> latest;
  std::uint32_t most = 0;
  for (const auto& [holder, keys] : held_) {
    for (const ShardKey& key : keys) {
      ++looked_at_;
      const Shard& shard = *Find(key);
      if (shard.backup_session != 0 || holder == session) continue;
      const std::uint32_t left = plan_.updates_in_shard(key.first, key.second) - shard.next;
      if (left < std::max(most, 1U) || (left == most && key > *latest)) continue;
      most = left;
      latest = key;
    }
  }
  if (latest.has_value()) LeaseTwice(*latest, session, numbers, reply);
}

void DataLeases::LeaseTwice(const ShardKey& key, std::uint64_t session, LeaseNumbers& numbers,
                            v1::WorkerSyncReply* reply) {
  Shard& shard = *Find(key);
  shard.backup_session = session;
  shard.backup_lease = numbers.Next();
  held_[session].insert(key);
  ++backups_;
  Add(key, shard, session, reply);
}

std::vector<ShardKey> DataLeases::EndSession(std::uint64_t session, std::uint64_t members_version) {
  spares_.erase(session);
  std::vector<ShardKey> working;
  const auto held = held_.find(session);
  if (held == held_.end()) return working;
  for (const ShardKey& key : std::set<ShardKey>(held->second)) {
    ++looked_at_;
    // What is only waiting to be confirmed was not being worked on.
    if (asked_.count(key) == 0) working.push_back(key);
    Shard& shard = *Find(key);
    if (shard.backup_session != 0) {  // who is left goes on with it
      if (shard.session == session) {
        shard.session = shard.backup_session;
        shard.lease = shard.backup_lease;
      }
      shard.backup_session = shard.backup_lease = 0;
      TakeAway(key, session);
      asked_.erase(key);  // who is left says when all of it is sent
      continue;
    }
    Release(key, shard);
    shard.next = 0;
    shard.state = State::kFencing;
    fencing_.emplace_back(members_version, key);
  }
  return working;
}

// ---- of ps

void DataLeases::SetPs(std::set<std::uint32_t> ps) {
  ps_ = std::move(ps);
  for (auto& [number, epoch] : epochs_) {
    for (std::uint32_t index = 0; index < epoch.shards.size(); ++index) {
      Shard& shard = epoch.shards[index];
      if (shard.state == State::kRetired) continue;
      shard.complete.clear();
      shard.inspected.clear();
      shard.incomplete_ps = ps_count();
      if (shard.state != State::kInspecting) continue;
      shard.inspected.resize(ps_slots());
      shard.uninspected_ps = ps_count();
      shard.done = Bitmap(plan_.updates_in_shard(number, index), true);
    }
  }
}

void DataLeases::Confirm(std::uint64_t members_version) {
  while (!fencing_.empty() && fencing_.front().first <= members_version) {
    const ShardKey key = fencing_.front().second;
    fencing_.pop_front();
    ++looked_at_;
    // A late answer of the ps may have retired it, and its epoch.
    Shard* shard = Find(key);
    if (shard != nullptr && shard->state == State::kFencing) Inspect(key, *shard);
  }
}

void DataLeases::Ask(std::uint32_t ps, v1::DirectRequest* directive) const {
  for (const ShardKey& key : asked_) {
    ++looked_at_;
    const Shard& shard = epochs_.at(key.first).shards[key.second];
    const std::vector<bool>& answered = shard.state == State::kInspecting ? shard.inspected : shard.complete;
    if (ps < answered.size() && answered[ps]) continue;
    v1::ShardId* id = shard.state == State::kInspecting ? directive->add_inspect() : directive->add_retire();
    id->set_dataset_epoch(key.first);
    id->set_shard(key.second);
  }
}

std::optional<ShardKey> DataLeases::Answer(std::uint32_t ps, const v1::ShardBitmap& answer) {
  const ShardKey key{answer.shard().dataset_epoch(), answer.shard().shard()};
  Shard* shard = Find(key);
  ++looked_at_;
  if (shard == nullptr || shard->state == State::kRetired || ps_.count(ps) == 0) return std::nullopt;
  shard->complete.resize(ps_slots());
  if (answer.complete() && !shard->complete[ps]) {
    shard->complete[ps] = true;
    --shard->incomplete_ps;
  }
  if (shard->incomplete_ps == 0) {
    Retire(key, *shard);
    return key;
  }
  const bool says = answer.complete() || answer.inspected();
  if (shard->state != State::kInspecting || shard->inspected[ps] || !says) return std::nullopt;
  shard->inspected[ps] = true;
  if (!answer.complete()) shard->done.And(Bitmap::FromBytes(shard->done.size(), answer.applied()));
  if (--shard->uninspected_ps > 0) return std::nullopt;
  Release(key, *shard);
  shard->state = State::kFree;
  SetFree(key);
  return std::nullopt;
}

bool DataLeases::Advance() {
  if (watermark_ >= end_.first) return false;
  const Epoch& epoch = EpochOf(watermark_);
  if (epoch.retired < epoch.shards.size()) return false;
  epochs_.erase(watermark_);
  affinity_.DropEpoch(watermark_);
  retired_updates_ -= plan_.updates_in_epoch(watermark_);
  ++watermark_;
  return true;
}

}  // namespace downpour::core
