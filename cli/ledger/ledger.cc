#include "cli/ledger/ledger.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace downpour::cli {
namespace {

using Replies = std::span<const v1::LedgerReply>;
using Slices = std::map<std::uint32_t, const v1::SliceLedger*>;

std::string NameOf(const LedgerExpectation& expectation, const v1::LedgerReply& reply) {
  return absl::StrCat(expectation.of_workers ? "worker-" : "ps-", reply.ps_index());
}

// How the updates of one dataset epoch are numbered and cut into data shards: shard i has those from [i] to before
// [i + 1].
using Firsts = std::vector<std::uint64_t>;

// How the updates of each dataset epoch are cut into data shards. The batch size may have changed between two shards
// when the job was resumed; the size of a shard in updates never does.
class Shape {
 public:
  Shape() = default;
  // Of so many epochs, or of so many updates: the last epoch has the first of its own.
  Shape(const v1::DataPlan& data, std::uint32_t epochs, std::uint64_t steps) : epochs_(epochs), data_(data) {
    if (steps == 0) return;
    std::uint64_t before = 0;
    for (epochs_ = 1; steps - before > Of(epochs_ - 1).back(); ++epochs_) before += Of(epochs_ - 1).back();
    Firsts last = Of(epochs_ - 1);
    while (last.size() > 2 && last[last.size() - 2] >= steps - before) last.pop_back();
    last.back() = steps - before;
    last_ = std::move(last);
  }

  // Leaves out this data shard and what is behind it.
  void EndBefore(const v1::ShardId& end) {
    std::uint32_t epoch = end.dataset_epoch();
    if (epoch >= epochs_) return;
    Firsts last = Of(epoch);
    if (end.shard() + std::uint64_t{1} >= last.size()) {
      ++epoch;  // which it has none of
    } else {
      last.resize(end.shard() + std::size_t{1});
    }
    if (epoch >= epochs_) return;
    epochs_ = epoch;
    last_.reset();
    if (end.dataset_epoch() < epoch || end.shard() == 0) return;
    ++epochs_;
    last_ = std::move(last);
    is_cut_ = true;
  }

  std::uint32_t epochs() const { return epochs_; }
  // Epochs that a slice can have completed: not the one in the middle of which training ended.
  std::uint32_t whole_epochs() const { return is_cut_ ? epochs_ - 1 : epochs_; }
  std::uint64_t Updates(std::uint32_t epoch) const { return Of(epoch).back(); }
  std::uint64_t UpdatesBefore(std::uint32_t epoch) const {
    std::uint64_t updates = 0;
    for (std::uint32_t i = 0; i < epoch; ++i) updates += Updates(i);
    return updates;
  }
  const Firsts& Of(std::uint32_t epoch) const {
    if (last_.has_value() && epoch + 1 == epochs_) return *last_;
    // Of epochs without a change there are as many kinds as there are batch sizes.
    std::uint32_t batch = data_.batch_size();
    bool changes = false;
    std::uint64_t samples = data_.sample_count();
    for (const v1::BatchChange& change : data_.changes()) {
      if (change.dataset_epoch() < epoch) batch = change.batch_size();
      changes = changes || change.dataset_epoch() == epoch;
      if (change.dataset_epoch() != epoch + 1 || change.previous_samples() == 0) continue;
      samples = change.previous_samples();
      changes = true;
    }
    const std::pair<std::uint32_t, std::uint32_t> kind(batch, changes ? epoch + 1 : 0);
    const auto [found, fresh] = kinds_.try_emplace(kind, Firsts{0});
    if (!fresh) return found->second;
    Firsts& firsts = found->second;
    for (std::uint64_t sample = 0; sample < samples;) {
      for (const v1::BatchChange& change : data_.changes()) {
        if (change.dataset_epoch() == epoch && change.shard() + 1 == firsts.size()) batch = change.batch_size();
      }
      std::uint64_t updates = 0;
      for (; updates < data_.updates_per_shard() && sample < samples; ++updates) sample += batch;
      firsts.push_back(firsts.back() + updates);
    }
    return firsts;
  }

 private:
  std::uint32_t epochs_ = 0;
  v1::DataPlan data_;
  std::optional<Firsts> last_;  // of an epoch that ends before its samples do
  bool is_cut_ = false;         // it ends before the plan does
  mutable std::map<std::pair<std::uint32_t, std::uint32_t>, Firsts> kinds_;
};

// Bit i is bit i % 8 of byte i / 8; bytes that are not there are zeros.
bool Bit(const std::string& bytes, std::uint64_t i) {
  return i / 8 < bytes.size() && ((static_cast<unsigned char>(bytes[i / 8]) >> (i % 8)) & 1) != 0;
}

std::uint64_t CountBits(const std::string& bytes) {
  std::uint64_t count = 0;
  for (const char byte : bytes) count += static_cast<std::uint64_t>(std::popcount(static_cast<unsigned char>(byte)));
  return count;
}

// The number of set bits, all of which must be below `limit`.
bool CountBitsBelow(const std::string& bytes, std::uint64_t limit, std::uint64_t* count) {
  *count = 0;
  for (std::uint64_t i = 0; i < limit && i / 8 < bytes.size(); ++i) *count += Bit(bytes, i) ? 1 : 0;
  return *count == CountBits(bytes);
}

absl::Status Contradiction(const v1::SliceLedger& slice, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("slice ", slice.slice(), ": ", what));
}

// The distinct updates of an epoch that the table of a slice records.
absl::StatusOr<std::uint64_t> CountEpoch(const Shape& shape, const v1::SliceLedger& slice,
                                         const v1::EpochTable& table) {
  const std::uint32_t epoch = table.dataset_epoch();
  static const Firsts kNone = {0};
  const Firsts& firsts = epoch < shape.epochs() ? shape.Of(epoch) : kNone;
  const std::uint64_t shards = firsts.size() - 1;
  std::uint64_t retired = 0;
  if (!CountBitsBelow(table.retired(), shards, &retired)) {
    return Contradiction(
        slice, absl::StrCat("retired a data shard that does not exist in epoch ", epoch, " (it has ", shards, ")"));
  }
  std::uint64_t distinct = 0;
  for (std::uint64_t shard = 0; retired > 0 && shard < shards; ++shard) {
    if (Bit(table.retired(), shard)) distinct += firsts[shard + 1] - firsts[shard];
  }
  std::set<std::uint32_t> seen;
  for (const v1::ShardTable& open : table.open()) {
    const std::string shard_name = absl::StrCat("data shard ", open.shard(), " of epoch ", epoch);
    if (!seen.insert(open.shard()).second) return Contradiction(slice, absl::StrCat(shard_name, " is open twice"));
    if (Bit(table.retired(), open.shard())) {
      return Contradiction(slice, absl::StrCat(shard_name, " is open and retired at once"));
    }
    const std::uint64_t size = open.shard() < shards ? firsts[open.shard() + 1] - firsts[open.shard()] : 0;
    std::uint64_t applied = 0;
    if (!CountBitsBelow(open.applied(), size, &applied)) {
      return Contradiction(slice, absl::StrCat(shard_name, " has an update beyond its ", size));
    }
    distinct += applied;
  }
  if (epoch < slice.watermark() && distinct + static_cast<std::uint64_t>(table.open_size()) > 0) {
    return Contradiction(
        slice, absl::StrCat("epoch ", epoch, " is before the watermark ", slice.watermark(), " and still has a table"));
  }
  return distinct;
}

// The distinct updates that a slice records.
absl::StatusOr<std::uint64_t> CountSlice(const Shape& shape, const v1::SliceLedger& slice) {
  if (slice.watermark() > shape.whole_epochs()) {
    return Contradiction(slice, absl::StrCat("watermark ", slice.watermark(), " of ", shape.whole_epochs(), " epochs"));
  }
  std::uint64_t distinct = shape.UpdatesBefore(slice.watermark());
  std::set<std::uint32_t> seen;
  for (const v1::EpochTable& table : slice.epochs()) {
    if (!seen.insert(table.dataset_epoch()).second) {
      return Contradiction(slice, absl::StrCat("epoch ", table.dataset_epoch(), " has two tables"));
    }
    const auto of_epoch = CountEpoch(shape, slice, table);
    if (!of_epoch.ok()) return of_epoch.status();
    distinct += *of_epoch;
  }
  if (slice.version() < distinct) {
    return Contradiction(
        slice, absl::StrCat("its table records ", distinct, " updates, but it took only ", slice.version(), " steps"));
  }
  if (slice.skipped() > slice.version()) {
    return Contradiction(slice, absl::StrCat("skipped ", slice.skipped(), " of ", slice.version(), " steps"));
  }
  return distinct;
}

// Clears in `common` what the slice lacks of the epoch.
void Intersect(const Shape& shape, const v1::SliceLedger& slice, std::uint32_t epoch, std::vector<bool>* common) {
  if (epoch < slice.watermark()) return;
  std::vector<bool> applied(common->size(), false);
  const Firsts& firsts = shape.Of(epoch);
  const auto size = [&firsts](std::uint64_t shard) { return firsts[shard + 1] - firsts[shard]; };
  for (const v1::EpochTable& table : slice.epochs()) {
    if (table.dataset_epoch() != epoch) continue;
    for (std::uint64_t shard = 0; shard + 1 < firsts.size(); ++shard) {
      if (!Bit(table.retired(), shard)) continue;
      for (std::uint64_t i = 0; i < size(shard); ++i) applied[firsts[shard] + i] = true;
    }
    for (const v1::ShardTable& open : table.open()) {
      if (open.shard() + 1 >= firsts.size()) continue;
      for (std::uint64_t i = 0; i < size(open.shard()); ++i) {
        if (Bit(open.applied(), i)) applied[firsts[open.shard()] + i] = true;
      }
    }
  }
  for (std::size_t i = 0; i < common->size(); ++i) (*common)[i] = (*common)[i] && applied[i];
}

bool HasBits(const std::string& bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
}

// The first epoch that no slice has begun.
std::uint32_t EndOfBegun(const Slices& slices) {
  std::uint32_t end = 0;
  for (const auto& [number, slice] : slices) {
    end = std::max(end, slice->watermark());
    for (const v1::EpochTable& table : slice->epochs()) {
      const bool begun =
          HasBits(table.retired()) || std::any_of(table.open().begin(), table.open().end(),
                                                  [](const auto& open) { return HasBits(open.applied()); });
      if (begun) end = std::max(end, table.dataset_epoch() + 1);
    }
  }
  return end;
}

// The updates that every slice has: only epochs that some slice has begun and not all have completed need a look at
// bits.
std::uint64_t CountCommon(const Shape& shape, const Slices& slices) {
  std::uint32_t watermark = std::numeric_limits<std::uint32_t>::max();
  for (const auto& [number, slice] : slices) watermark = std::min(watermark, slice->watermark());
  const std::uint32_t end = EndOfBegun(slices);
  std::uint64_t count = shape.UpdatesBefore(watermark);
  for (std::uint32_t epoch = watermark; epoch < std::min(end, shape.epochs()); ++epoch) {
    std::vector<bool> common(shape.Updates(epoch), true);
    for (const auto& [number, slice] : slices) Intersect(shape, *slice, epoch, &common);
    count += static_cast<std::uint64_t>(std::count(common.begin(), common.end(), true));
  }
  return count;
}

absl::Status Differs(const std::string& name, absl::string_view what, std::uint64_t got, std::uint64_t want) {
  return absl::FailedPreconditionError(
      absl::StrCat(name, " trains with ", what, " ", got, ", the job asks for ", want));
}

// Whether both change the batch size alike, and to sizes of at least one sample.
bool SameSizes(const v1::DataPlan& a, const v1::DataPlan& b) {
  if (a.batch_size() == 0 || a.batch_size() != b.batch_size() || a.changes_size() != b.changes_size()) return false;
  for (int i = 0; i < a.changes_size(); ++i) {
    const v1::BatchChange& x = a.changes(i);
    const v1::BatchChange& y = b.changes(i);
    if (x.batch_size() == 0 || x.dataset_epoch() != y.dataset_epoch() || x.shard() != y.shard() ||
        x.batch_size() != y.batch_size() || x.previous_samples() != y.previous_samples()) {
      return false;
    }
  }
  return true;
}

// Before which data shard training ended. A ps may lag behind with it, but two cannot differ.
absl::StatusOr<std::optional<v1::ShardId>> FindEnd(const LedgerExpectation& expectation, Replies replies) {
  std::optional<v1::ShardId> end;
  std::string from;
  const auto text = [](const v1::ShardId& shard) {
    return absl::StrCat("data shard ", shard.shard(), " of epoch ", shard.dataset_epoch());
  };
  for (const v1::LedgerReply& reply : replies) {
    if (!reply.has_end()) continue;
    const std::string name = NameOf(expectation, reply);
    if (!expectation.may_stop) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " ends training before ", text(reply.end()), "; the job has no early stopping"));
    }
    if (end.has_value() && text(*end) != text(reply.end())) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " ends training before ", text(reply.end()), ", ", from, " before ", text(*end)));
    }
    end = reply.end();
    from = name;
  }
  if (end.has_value() && end->dataset_epoch() == 0 && end->shard() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(from, " ends training before the first data shard"));
  }
  return end;
}

// That every reply speaks of this job, of one generation and of the data that the manifest and the files state.
absl::StatusOr<Shape> CheckReplies(const LedgerExpectation& expectation, Replies replies) {
  if (replies.empty()) return absl::FailedPreconditionError("no ps answered");
  const v1::LedgerReply& first = replies.front();
  const std::string first_name = NameOf(expectation, first);
  std::set<std::uint32_t> seen;
  for (const v1::LedgerReply& reply : replies) {
    const std::string name = NameOf(expectation, reply);
    if (reply.job_uid() != expectation.job_uid) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " serves the job ", reply.job_uid(), ", not ", expectation.job_uid));
    }
    if (!seen.insert(reply.ps_index()).second)
      return absl::FailedPreconditionError(absl::StrCat(name, " answered twice"));
    if (reply.stamp().generation() != first.stamp().generation()) {
      return absl::FailedPreconditionError(absl::StrCat(name, " is in generation ", reply.stamp().generation(), ", ",
                                                        first_name, " in ", first.stamp().generation()));
    }
    if (!reply.has_data()) return absl::FailedPreconditionError(absl::StrCat(name, " has no data plan yet"));
    const v1::DataPlan& data = reply.data();
    if (data.sample_count() != *expectation.sample_count) {
      return Differs(name, "a sample count of", data.sample_count(), *expectation.sample_count);
    }
    const std::uint32_t batch_size =
        data.changes().empty() ? data.batch_size() : data.changes(data.changes_size() - 1).batch_size();
    if (batch_size != expectation.batch_size) {
      return Differs(name, "a batch size of", batch_size, expectation.batch_size);
    }
    if (!SameSizes(data, first.data())) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " and ", first_name, " changed the batch size at ", "different data shards, or to none"));
    }
    if (data.steps() != expectation.steps) {
      return Differs(name, "a number of updates of", data.steps(), expectation.steps);
    }
    if (expectation.steps == 0 && data.epochs() != expectation.epochs) {
      return Differs(name, "a number of epochs of", data.epochs(), expectation.epochs);
    }
    const std::uint64_t per_shard = expectation.updates_per_shard.value_or(first.data().updates_per_shard());
    if (data.updates_per_shard() != per_shard) {
      return Differs(name, "updates a data shard of", data.updates_per_shard(), per_shard);
    }
    if (per_shard == 0) return absl::FailedPreconditionError(absl::StrCat(name, " has data shards of no update"));
  }
  Shape shape(first.data(), expectation.epochs, expectation.steps);
  for (const v1::LedgerReply& reply : replies) {
    if (reply.data().epochs() == shape.epochs()) continue;
    return Differs(NameOf(expectation, reply), "a number of epochs of", reply.data().epochs(), shape.epochs());
  }
  const absl::StatusOr<std::optional<v1::ShardId>> end = FindEnd(expectation, replies);
  if (!end.ok()) return end.status();
  if (end->has_value()) shape.EndBefore(**end);
  return shape;
}

// Every slice 0..n-1 on exactly one ps. Of two ps that both own a slice one has not heard yet that it went over to the
// other, which has the newer view.
absl::StatusOr<Slices> CollectSlices(const LedgerExpectation& expectation, Replies replies) {
  Slices slices;
  std::map<std::uint32_t, const v1::LedgerReply*> holders;
  const auto age = [](const v1::LedgerReply& reply) {
    return std::make_pair(reply.stamp().incarnation(), reply.stamp().epoch());
  };
  for (const v1::LedgerReply& reply : replies) {
    for (const v1::SliceLedger& slice : reply.slices()) {
      const auto [holder, fresh] = holders.emplace(slice.slice(), &reply);
      if (!fresh && age(*holder->second) == age(reply)) {
        return absl::DataLossError(absl::StrCat("slice ", slice.slice(), " is reported by ",
                                                NameOf(expectation, *holder->second), " and by ",
                                                NameOf(expectation, reply)));
      }
      if (!fresh && age(*holder->second) > age(reply)) continue;
      holder->second = &reply;
      slices[slice.slice()] = &slice;
    }
  }
  std::uint64_t next = 0;
  for (const auto& [number, slice] : slices) {
    if (number != next) break;
    ++next;
  }
  const std::uint64_t count =
      expectation.slice_count.value_or(slices.empty() ? 1 : std::uint64_t{slices.rbegin()->first} + 1);
  if (next < count)
    return absl::DataLossError(absl::StrCat("slice ", next, expectation.of_workers ? " is not there" : " is on no ps"));
  if (slices.size() > count) {
    return absl::DataLossError(absl::StrCat("slice ", count, " is reported, the model has ", count, " slices"));
  }
  return slices;
}

// With the sample count, if that is to be taken from the replies.
absl::StatusOr<LedgerExpectation> Complete(LedgerExpectation expectation, Replies replies) {
  if (!expectation.sample_count.has_value() && !replies.empty()) {
    expectation.sample_count = replies.front().data().sample_count();
  }
  if (!expectation.sample_count.has_value()) return absl::FailedPreconditionError("no parameter server answered");
  if (expectation.sample_count == 0 || expectation.batch_size == 0 ||
      (expectation.epochs == 0) == (expectation.steps == 0)) {
    return absl::InvalidArgumentError("the expectation needs a sample count, a batch size and epochs or steps");
  }
  if (expectation.sample_count > std::numeric_limits<std::uint32_t>::max()) {
    return absl::InvalidArgumentError("there cannot be so many samples");
  }
  return expectation;
}

absl::StatusOr<LedgerSummary> Summarise(const LedgerExpectation& expectation, const Shape& shape,
                                        const Slices& slices) {
  LedgerSummary summary;
  summary.of_workers = expectation.of_workers;
  // A search has at least one evaluation.
  const std::uint32_t begun = std::max(1u, std::min(EndOfBegun(slices), shape.epochs()));
  summary.expected = shape.UpdatesBefore(expectation.may_converge ? begun : shape.epochs());
  summary.applied = shape.UpdatesBefore(shape.epochs());
  for (const auto& [number, slice] : slices) {
    const auto distinct = CountSlice(shape, *slice);
    if (!distinct.ok()) return distinct.status();
    summary.applied = std::min(summary.applied, *distinct);
    summary.duplicated = std::max(summary.duplicated, slice->version() - *distinct);
    summary.skipped = std::max(summary.skipped, slice->skipped());
  }
  summary.missing = summary.expected - CountCommon(shape, slices);
  return summary;
}

// A worker of a ring.
struct Holder {
  std::string name;
  Slices slices;
  LedgerSummary summary;

  std::uint64_t updates() const { return summary.expected - summary.missing; }
};

absl::StatusOr<Holder> MakeHolder(const LedgerExpectation& expectation, const Shape& shape,
                                  const v1::LedgerReply& reply) {
  Holder holder;
  holder.name = NameOf(expectation, reply);
  const auto named = [&holder](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(holder.name, ": ", status.message()));
  };
  absl::StatusOr<Slices> slices = CollectSlices(expectation, Replies(&reply, 1));
  if (!slices.ok()) return named(slices.status());
  holder.slices = *std::move(slices);
  const absl::StatusOr<LedgerSummary> summary = Summarise(expectation, shape, holder.slices);
  if (!summary.ok()) return named(summary.status());
  holder.summary = *summary;
  return holder;
}

// Whether one that has no more than the other can have become what it is by steps that the other took too.
bool IsBefore(const Shape& shape, const Holder& few, const Holder& many) {
  Slices both = many.slices;
  for (const auto& [number, slice] : few.slices) both[static_cast<std::uint32_t>(both.size())] = slice;
  if (CountCommon(shape, both) != few.updates()) return false;
  return few.updates() < many.updates() || few.summary.skipped == many.summary.skipped;
}

// `holders`: the one with most updates first.
absl::Status CheckAgreement(const Shape& shape, const std::vector<Holder>& holders) {
  const Holder& most = holders.front();
  std::vector<std::string> against;
  for (const Holder& holder : holders) {
    if (!IsBefore(shape, holder, most)) against.push_back(holder.name);
  }
  if (against.empty()) return absl::OkStatus();
  // Most are taken to be right.
  const bool alone = 2 * against.size() > holders.size() - 1;
  return absl::DataLossError(absl::StrCat(alone ? most.name : against.front(), " contradicts ",
                                          alone ? absl::StrJoin(against, ", ") : most.name,
                                          ": they have not taken the same steps"));
}

}  // namespace

absl::StatusOr<LedgerSummary> AuditLedger(const LedgerExpectation& given, const std::vector<v1::LedgerReply>& replies) {
  const absl::StatusOr<LedgerExpectation> expectation = Complete(given, replies);
  if (!expectation.ok()) return expectation.status();
  const auto shape = CheckReplies(*expectation, replies);
  if (!shape.ok()) return shape.status();
  const auto slices = CollectSlices(*expectation, replies);
  if (!slices.ok()) return slices.status();
  return Summarise(*expectation, *shape, *slices);
}

absl::StatusOr<LedgerSummary> AuditRing(const LedgerExpectation& given, std::vector<v1::LedgerReply> replies,
                                        bool over) {
  const auto is_ours = [&given](const v1::LedgerReply& reply) { return reply.job_uid() == given.job_uid; };
  std::uint64_t generation = 0;
  std::erase_if(replies, [&](const v1::LedgerReply& reply) {
    return is_ours(reply) && (!reply.has_data() || reply.slices().empty());
  });
  if (replies.empty()) return absl::UnavailableError("no worker has a model yet");
  LedgerExpectation expectation = given;
  expectation.of_workers = true;
  for (const v1::LedgerReply& reply : replies) {
    if (is_ours(reply)) generation = std::max<std::uint64_t>(generation, reply.stamp().generation());
  }
  const auto is_old = [&](const v1::LedgerReply& reply) {
    return is_ours(reply) && reply.stamp().generation() < generation;
  };
  const auto old = std::find_if(replies.begin(), replies.end(), is_old);
  if (over && old != replies.end()) {
    return absl::AbortedError(absl::StrCat(NameOf(expectation, *old), " is still in generation ",
                                           old->stamp().generation(), ", others are in ", generation));
  }
  std::erase_if(replies, is_old);

  absl::StatusOr<LedgerExpectation> complete = Complete(std::move(expectation), replies);
  if (!complete.ok()) return complete.status();
  expectation = *std::move(complete);
  const auto shape = CheckReplies(expectation, replies);
  if (!shape.ok()) return shape.status();
  if (!expectation.slice_count.has_value()) {
    std::uint32_t count = 0;
    for (const v1::LedgerReply& reply : replies) {
      for (const v1::SliceLedger& slice : reply.slices()) count = std::max(count, slice.slice() + 1);
    }
    expectation.slice_count = count;
  }
  std::vector<Holder> holders;
  holders.reserve(replies.size());
  for (const v1::LedgerReply& reply : replies) {
    absl::StatusOr<Holder> holder = MakeHolder(expectation, *shape, reply);
    if (!holder.ok()) return holder.status();
    holders.push_back(*std::move(holder));
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Holder& a, const Holder& b) { return a.updates() > b.updates(); });
  if (absl::Status agreement = CheckAgreement(*shape, holders); !agreement.ok()) return agreement;
  const Holder& most = holders.front();
  LedgerSummary summary = most.summary;
  for (const Holder& holder : holders) {
    if (over && holder.updates() < most.updates()) {
      return absl::AbortedError(
          absl::StrCat(holder.name, " has ", holder.updates(), " updates, ", most.name, " has ", most.updates()));
    }
    summary.applied = std::min(summary.applied, holder.summary.applied);
    summary.missing = std::max(summary.missing, holder.summary.missing);
    summary.duplicated = std::max(summary.duplicated, holder.summary.duplicated);
    summary.skipped = std::max(summary.skipped, holder.summary.skipped);
  }
  return summary;
}

}  // namespace downpour::cli
