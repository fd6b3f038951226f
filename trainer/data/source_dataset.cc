#include "trainer/data/source_dataset.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "trainer/data/parallel.h"

namespace downpour::data {
namespace {

// From a column to a field, ready to be applied.
struct Chain {
  std::vector<std::size_t> columns;   // more than one: single numbers, in a row
  std::vector<Transform> to_numbers;  // of these: each as fp32
  std::vector<Transform> transforms;
  std::vector<Column> before;  // what each of these is given
  Field field;
  // See Dataset::Defer: steps from here on are left out, and this is what there is instead of `field`.
  std::size_t deferred = std::numeric_limits<std::size_t>::max();
  Field stored = {};
  bool target = false;
  bool last_use = false;  // no chain behind it takes its one column
};

absl::StatusOr<std::size_t> Find(const std::vector<Column>& columns, const std::string& name) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&name](const Column& column) { return column.name == name; });
  if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
  return absl::InvalidArgumentError(absl::StrCat(
      "column \"", name, "\": there is none of this name; there are ",
      absl::StrJoin(columns, ", ", [](std::string* text, const Column& column) { text->append(column.name); })));
}

// What a field of several columns begins with.
absl::StatusOr<Column> Row(const std::vector<Column>& columns, const SourceField& field, Chain* chain) {
  for (const std::string& name : field.columns) {
    const absl::StatusOr<std::size_t> at = Find(columns, name);
    if (!at.ok()) return at.status();
    const Column& column = columns[*at];
    if (column.text || !column.shape.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column \"", name, "\": a field of several columns is of single numbers, not of ", TypeText(column)));
    }
    absl::StatusOr<Transform> number = Cast(column, ElementType::kF32);
    if (!number.ok()) return number.status();
    chain->columns.push_back(*at);
    chain->to_numbers.push_back(*std::move(number));
  }
  return Column{field.name, ElementType::kF32, {static_cast<std::int64_t>(field.columns.size())}};
}

absl::StatusOr<Chain> Bind(const std::vector<Column>& columns, const SourceField& field) {
  Chain chain;
  chain.target = field.target;
  Column column;
  if (field.columns.empty()) {
    const absl::StatusOr<std::size_t> at = Find(columns, field.column);
    if (!at.ok()) return at.status();
    chain.columns = {*at};
    column = columns[*at];
  } else {
    absl::StatusOr<Column> row = Row(columns, field, &chain);
    if (!row.ok()) return row.status();
    column = *std::move(row);
  }
  const std::string& name = field.columns.empty() ? field.column : field.name;
  for (const SourceField::Step& step : field.steps) {
    chain.before.push_back(column);
    if (step == nullptr) {
      chain.transforms.emplace_back();
      continue;
    }
    absl::StatusOr<Transform> transform = step(column);
    if (!transform.ok()) {
      return absl::Status(transform.status().code(),
                          absl::StrCat("column \"", name, "\": ", transform.status().message()));
    }
    column = transform->output;
    chain.transforms.push_back(*std::move(transform));
  }
  if (column.text) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"", name, "\": text is nothing that a model takes: it needs Tokenize"));
  }
  if (!column.shape.empty() &&
      std::find(column.shape.begin() + 1, column.shape.end(), kAnyExtent) != column.shape.end()) {
    return absl::InvalidArgumentError(absl::StrCat("column \"", name, "\": ", TypeText(column),
                                                   " has another shape in each sample: it needs Resize or a crop"));
  }
  chain.field = {field.name.empty() ? field.column : field.name, column.type, column.shape, column.classes};
  chain.stored = chain.field;
  return chain;
}

// The first of the last steps that can all be made of a whole minibatch, of values that have one shape.
std::size_t FirstToDefer(const Chain& chain) {
  std::size_t first = chain.transforms.size();
  for (std::size_t step = first; step-- > 0;) {
    const Transform& transform = chain.transforms[step];
    if (transform.apply == nullptr) continue;
    const Column& before = chain.before[step];
    const bool one_shape = std::find(before.shape.begin(), before.shape.end(), kAnyExtent) == before.shape.end();
    if (!transform.batched.has_value() || before.text) break;
    if (one_shape) first = step;
  }
  return first;
}

class SourceDataset final : public Dataset {
 public:
  SourceDataset(std::shared_ptr<const SampleSource> source, std::vector<Chain> chains, BadSamplePolicy policy,
                int threads)
      : source_(std::move(source)),
        chains_(std::move(chains)),
        policy_(policy),
        threads_(threads + 1),
        parallel_(threads) {
    for (const Chain& chain : chains_) (chain.target ? fields_.targets : fields_.inputs).push_back(chain.field);
  }

  std::int64_t size() const override { return source_->size(); }
  const SampleFields& fields() const override { return fields_; }
  std::uint64_t skipped() const override {
    const absl::MutexLock lock(&skipped_mutex_);
    return skipped_.size();
  }
  LoadTimes times() const override {
    const absl::MutexLock lock(&times_mutex_);
    return times_;
  }
  int threads() const override { return threads_; }
  void Stop() const override { stopped_.store(true, std::memory_order_relaxed); }

  Deferred Defer() override {
    Deferred deferred;
    deferred.fixed = true;
    for (Chain& chain : chains_) {
      chain.deferred = FirstToDefer(chain);
      Deferred::Of of;
      for (std::size_t step = 0; step < chain.transforms.size(); ++step) {
        const Transform& transform = chain.transforms[step];
        if (transform.apply == nullptr) continue;
        if (step < chain.deferred) {
          deferred.fixed = deferred.fixed && !transform.random;
        } else {
          of.steps.push_back(*transform.batched);
          of.steps.back().number = step;
        }
      }
      if (!of.steps.empty()) {
        const Column& before = chain.before[chain.deferred];
        chain.stored = {chain.field.name, before.type, before.shape, before.classes};
      }
      of.stored = chain.stored;
      (chain.target ? deferred.targets : deferred.inputs).push_back(std::move(of));
    }
    deferred_ = true;
    return deferred;
  }

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices, std::optional<std::uint64_t> seed) const override {
    absl::StatusOr<Batch> batch = ReadUncounted(indices, seed);
    if (!batch.ok()) return batch;
    if (absl::Status counted = CountBroken(*batch); !counted.ok()) return counted;
    return batch;
  }

  absl::StatusOr<Batch> ReadUncounted(absl::Span<const std::int64_t> indices,
                                      std::optional<std::uint64_t> seed) const override {
    std::vector<absl::StatusOr<Sample>> read(indices.size());
    std::vector<Array> arrays = MakeArrays(indices.size());
    // Behind a sample that ends it none is begun any more; those before it are, so that the error does not depend on
    // the number of threads.
    std::atomic<std::size_t> end = indices.size();
    parallel_.ForEach(indices.size(), [&](std::size_t i) {
      if (i > end.load(std::memory_order_relaxed)) return;
      read[i] = stopped_.load(std::memory_order_relaxed) ? absl::CancelledError("the data set is not read any more")
                                                         : ReadOne(indices[i], seed);
      if (read[i].ok()) return Place(i, &*read[i], &arrays);
      if (MaySkip(read[i].status())) return;
      std::size_t before = end.load(std::memory_order_relaxed);
      while (i < before && !end.compare_exchange_weak(before, i, std::memory_order_relaxed)) {
      }
    });
    const Stopwatch collate;
    std::vector<std::size_t> kept;
    kept.reserve(indices.size());
    Batch batch;
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i].ok()) {
        kept.push_back(i);
      } else if (MaySkip(read[i].status())) {
        batch.broken.push_back({indices[i], std::string(read[i].status().message())});
      } else {
        return read[i].status();
      }
    }
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const bool ragged = chains_[i].stored.ragged();
      if (!ragged) KeepRows(kept, &arrays[i]);
      (chains_[i].target ? batch.targets : batch.inputs)
          .push_back(ragged ? CollectRagged(chains_[i].stored, read, kept, i) : std::move(arrays[i]));
    }
    if (deferred_) {
      for (const std::size_t i : kept) batch.indices.push_back(indices[i]);
      batch.seed = seed;
    }
    AddTimes({.collate = collate.seconds()});
    return batch;
  }

  absl::Status CountBroken(const Batch& batch) const override {
    const absl::MutexLock lock(&skipped_mutex_);
    for (const BrokenSample& broken : batch.broken) {
      if (skipped_.contains(broken.index)) continue;  // it was left out before
      if (skipped_.size() >= policy_.most) {
        return absl::DataLossError(
            absl::StrCat(broken.why, "; ", policy_.most, " broken samples were skipped before, and no more may be"));
      }
      skipped_.insert(broken.index);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Sample> ReadOne(std::int64_t index, std::optional<std::uint64_t> seed) const {
    const double decoded_before = decode_seconds;
    const Stopwatch read;
    absl::StatusOr<Sample> stored = source_->Read(index);
    const double decode = decode_seconds - decoded_before;
    const double spent = read.seconds();
    const Stopwatch transform;
    absl::StatusOr<Sample> sample = stored.ok() ? TransformOne(index, seed, *std::move(stored)) : std::move(stored);
    AddTimes({.read = spent - decode, .decode = decode, .transform = transform.seconds()});
    return sample;
  }

  absl::StatusOr<Sample> TransformOne(std::int64_t index, std::optional<std::uint64_t> seed, Sample stored) const {
    Sample sample;
    sample.reserve(chains_.size());
    for (const Chain& chain : chains_) {
      absl::StatusOr<Value> begun = Begin(chain, &stored);
      if (!begun.ok()) return begun.status();
      Value value = *std::move(begun);
      for (std::size_t step = 0; step < std::min(chain.deferred, chain.transforms.size()); ++step) {
        if (chain.transforms[step].apply == nullptr) continue;
        // The same numbers for the same step of each field: an image and its mask are moved alike.
        std::optional<Random> random;
        if (seed.has_value()) random.emplace(*seed, step, static_cast<std::uint64_t>(index));
        absl::StatusOr<Value> transformed =
            chain.transforms[step].apply(std::move(value), random.has_value() ? &*random : nullptr);
        if (!transformed.ok()) {
          return absl::Status(transformed.status().code(), absl::StrCat("sample ", index, ", ", chain.field.name, ": ",
                                                                        transformed.status().message()));
        }
        value = *std::move(transformed);
      }
      sample.push_back(std::move(value));
    }
    return sample;
  }

  // Copies what another field is made of as well.
  static absl::StatusOr<Value> Begin(const Chain& chain, Sample* columns) {
    Sample& stored = *columns;
    if (chain.last_use) return std::move(stored[chain.columns.front()]);
    if (chain.to_numbers.empty()) return stored[chain.columns.front()];
    Value row{{static_cast<std::int64_t>(chain.columns.size())}, {}};
    for (std::size_t i = 0; i < chain.columns.size(); ++i) {
      absl::StatusOr<Value> number = chain.to_numbers[i].apply(stored[chain.columns[i]], nullptr);
      if (!number.ok()) return number.status();
      row.bytes.insert(row.bytes.end(), number->bytes.begin(), number->bytes.end());
    }
    return row;
  }

  void AddTimes(const LoadTimes& times) const {
    const absl::MutexLock lock(&times_mutex_);
    times_.read += times.read;
    times_.decode += times.decode;
    times_.transform += times.transform;
    times_.collate += times.collate;
  }

  bool MaySkip(const absl::Status& status) const { return absl::IsDataLoss(status) && policy_.skip; }

  // Of the fields that are not ragged.
  std::vector<Array> MakeArrays(std::size_t samples) const {
    std::vector<Array> arrays(chains_.size());
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const Field& field = chains_[i].stored;
      if (!field.ragged()) arrays[i] = MakeArray(field, static_cast<std::int64_t>(samples));
    }
    return arrays;
  }

  // Moves the values of a sample to its row, while they are in the cache of the thread that made them.
  void Place(std::size_t row, Sample* sample, std::vector<Array>* arrays) const {
    const Stopwatch collate;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      if (chains_[i].stored.ragged()) continue;
      std::vector<std::byte>& bytes = (*sample)[i].bytes;
      std::copy(bytes.begin(), bytes.end(),
                (*arrays)[i].bytes.begin() + static_cast<std::ptrdiff_t>(row * bytes.size()));
      bytes = std::vector<std::byte>();  // and not {}, which keeps the memory
    }
    AddTimes({.collate = collate.seconds()});
  }

  // The rows of samples that were left out are closed up.
  static void KeepRows(const std::vector<std::size_t>& kept, Array* array) {
    const auto rows = static_cast<std::size_t>(array->shape.front());
    if (kept.size() == rows) return;
    const std::size_t stride = array->bytes.size() / rows;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto from = array->bytes.begin() + static_cast<std::ptrdiff_t>(kept[i] * stride);
      if (kept[i] != i) std::copy_n(from, stride, array->bytes.begin() + static_cast<std::ptrdiff_t>(i * stride));
    }
    array->bytes.resize(kept.size() * stride);
    array->shape.front() = static_cast<std::int64_t>(kept.size());
  }

  static Array CollectRagged(const Field& field, const std::vector<absl::StatusOr<Sample>>& read,
                             const std::vector<std::size_t>& kept, std::size_t chain) {
    std::vector<std::int64_t> lengths;
    lengths.reserve(kept.size());
    for (const std::size_t i : kept) lengths.push_back((*read[i])[chain].shape.front());
    Array array = MakeRaggedArray(field, std::move(lengths));
    const std::size_t stride = kept.empty() ? 0 : array.bytes.size() / kept.size();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::vector<std::byte>& bytes = (*read[kept[i]])[chain].bytes;
      std::copy(bytes.begin(), bytes.end(), array.bytes.begin() + static_cast<std::ptrdiff_t>(i * stride));
    }
    return array;
  }

  const std::shared_ptr<const SampleSource> source_;
  std::vector<Chain> chains_;
  bool deferred_ = false;  // see Defer
  const BadSamplePolicy policy_;
  SampleFields fields_;
  const int threads_;  // the caller's among them
  mutable absl::Mutex skipped_mutex_;
  mutable std::unordered_set<std::int64_t> skipped_ ABSL_GUARDED_BY(skipped_mutex_);  // policy_.most at most
  mutable std::atomic<bool> stopped_{false};
  mutable absl::Mutex times_mutex_;
  mutable LoadTimes times_ ABSL_GUARDED_BY(times_mutex_);
  mutable Parallel parallel_;
};

}  // namespace

std::vector<SourceField> UsualFields(const std::vector<Column>& columns) {
  std::vector<SourceField> fields;
  fields.reserve(columns.size());
  for (const Column& column : columns) {
    fields.push_back(
        {.column = column.name, .target = column.classes > 0 || column.name == "label" || column.name == "target"});
  }
  return fields;
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeSourceDataset(std::shared_ptr<const SampleSource> source,
                                                           const std::vector<SourceField>& fields,
                                                           BadSamplePolicy policy, int threads) {
  std::vector<Chain> chains;
  for (const SourceField& field : fields) {
    absl::StatusOr<Chain> chain = Bind(source->columns(), field);
    if (!chain.ok()) return chain.status();
    chains.push_back(*std::move(chain));
  }
  for (std::size_t i = 0; i < chains.size(); ++i) {
    chains[i].last_use =
        chains[i].to_numbers.empty() &&
        std::none_of(chains.begin() + static_cast<std::ptrdiff_t>(i) + 1, chains.end(),
                     [column = chains[i].columns.front()](const Chain& later) {
                       return std::find(later.columns.begin(), later.columns.end(), column) != later.columns.end();
                     });
  }
  const auto none = [&chains](bool target) {
    return std::none_of(chains.begin(), chains.end(), [target](const Chain& chain) { return chain.target == target; });
  };
  for (const bool target : {false, true}) {
    if (!none(target)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "no column is ", target ? "a target" : "an input", " among ",
        absl::StrJoin(fields, ", ", [](std::string* text, const auto& field) { text->append(field.column); })));
  }
  return std::make_unique<SourceDataset>(std::move(source), std::move(chains), policy, threads);
}

}  // namespace downpour::data
