#include "trainer/worker/ring_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "trainer/core/ring/state_shares.h"
#include "trainer/service/process.h"
#include "trainer/wire/crc32c.h"

namespace downpour::worker {
namespace {

// What every rank says of a step, summed over all.
enum Said : std::size_t { kBad, kSamples, kLoss, kCut, kSaidCount };

bool AllLack(const core::RingReplica& replica, const core::UpdateId& update) {
  for (std::uint32_t number = 0; number < replica.slices().size(); ++number) {
    if (!replica.Lacks(number, update)) return false;
  }
  return true;
}

}  // namespace

struct RingStep::Computed {
  core::ComputeResult result;
  absl::Status own;    // the first error of the device
  absl::Status group;  // and of the group
  std::vector<std::pair<collective::Collective*, collective::Handle>> under_way;

  void Start(collective::Collective& side, const absl::StatusOr<collective::Handle>& handle) {
    if (handle.ok()) under_way.emplace_back(&side, *handle);
    if (group.ok()) group = handle.status();
  }
};

RingStep::RingStep(const Options& options, model::Model* model, BatchLoader* loader, GradientBuckets buckets)
    : options_(options), model_(model), loader_(loader), buckets_(std::move(buckets)), said_(kSaidCount) {
  model_->StageFrom([loader] { return loader->Ahead(); });
}

void RingStep::SendReady(collective::Collective& group, bool waits, Computed* computed) {
  // The sum of one is there already.
  while (group.size() > 1 && computed->own.ok() && computed->group.ok()) {
    const absl::StatusOr<std::optional<std::size_t>> bucket = buckets_.TakeReady(waits);
    computed->own = bucket.status();
    if (!bucket.ok() || !bucket->has_value()) return;
    const absl::Span<float> values = buckets_.bucket(**bucket);
    const bool of_parameters = **bucket < buckets_.layout().parameter_buckets();
    const collective::Precision travels = of_parameters ? options_.travels : collective::Precision::kFloat32;
    computed->Start(group, divided_ && of_parameters ? group.StartReduceScatter(values, travels)
                                                     : group.StartAllReduce(values, travels));
  }
}

absl::Status RingStep::AddGradient(const core::RingReplica& replica, const core::UpdateId& update, std::size_t tensor,
                                   const float* gradient, float weight) {
  // Only behind a checkpoint of parameter servers some slices have an update that others lack.
  std::vector<core::Range> lacking;
  bool all = true;
  for (std::uint32_t number = 0; number < replica.slices().size(); ++number) {
    const core::Slice& slice = replica.slices()[number];
    if (slice.tensor != tensor) continue;
    const bool lacks = replica.Lacks(number, update);
    all = all && lacks;
    if (lacks) lacking.push_back({slice.offset, slice.offset + slice.elements});
  }
  if (all) return buckets_.Add(tensor, gradient, weight);
  absl::Status added;
  for (const core::Range& part : lacking) {
    if (added.ok()) added = buckets_.AddPart(tensor, part, gradient, weight);
  }
  return added;
}

absl::Status RingStep::ComputeOwn(const core::RingWork& work, const core::RingReplica& replica, const RingGroup& sides,
                                  Computed* computed) {
  collective::Collective& group = *sides.values;
  const core::DataPlan& plan = replica.plan();
  core::ComputeResult& result = computed->result;
  std::vector<core::UpdateId> ahead = work.own;
  const std::vector<core::UpdateId> behind = replica.StepBehind(work.updates.front());
  for (std::size_t i = 0; i < behind.size(); ++i) {
    if (i % static_cast<std::size_t>(group.size()) == static_cast<std::size_t>(group.rank())) {
      ahead.push_back(behind[i]);
    }
  }
  core::Time begun = service::MonotonicNow();
  for (std::size_t own = 0; own < work.own.size(); ++own) {
    const core::UpdateId& update = work.own[own];
    ahead.erase(ahead.begin());
    const bool everywhere = AllLack(replica, update);
    const std::uint32_t count = plan.minibatches_in_update(update, options_.batch_size);
    result.samples += plan.samples_in_update(update);
    for (std::uint32_t number = 0; number < count; ++number) {
      const auto read = loader_->Take(plan, {update, number});
      if (!read.ok()) return read.status();
      const data::Batch& batch = **read;
      loader_->Prefetch(plan, {update, number + 1}, ahead);
      result.data_seconds += absl::ToDoubleSeconds(service::MonotonicNow() - begun);
      // All of its samples are broken, and skipped: there is no gradient of none.
      if (batch.size() == 0) said_[kBad] = 1;
      if (said_[kBad] != 0) return absl::OkStatus();
      // Of the samples that are planned: those that are left out as broken ones do not make it weigh less.
      const std::uint64_t first = std::uint64_t{number} * options_.batch_size;
      const auto samples =
          static_cast<float>(std::min<std::uint64_t>(plan.samples_in_update(update) - first, options_.batch_size));
      const bool last = own + 1 == work.own.size() && number + 1 == count;
      const auto on_loss = [this](double loss) {
        if (!std::isfinite(loss)) said_[kBad] = 1;
        return std::isfinite(loss);
      };
      const auto on_gradient = [&](std::size_t tensor, const float* gradient) {
        if (!computed->own.ok()) return;
        computed->own = everywhere ? buckets_.Add(tensor, gradient, samples)
                                   : AddGradient(replica, update, tensor, gradient, samples);
        if (!last || !computed->own.ok()) return;
        computed->own = buckets_.Complete(tensor);
        // What a device has yet to compute is waited for once all of backward has been handed to it.
        if (!sides.waits_for_device) SendReady(group, /*waits=*/false, computed);
      };
      const std::uint64_t seed = plan.UpdateSeed(update, number);
      const absl::StatusOr<model::StepResult> step =
          options_.on_device ? model_->ComputeDeviceGradients(batch, seed, on_loss, on_gradient)
                             : model_->ComputeGradients(batch, seed, on_loss,
                                                        [&](std::size_t tensor, absl::Span<const float> gradient) {
                                                          on_gradient(tensor, gradient.data());
                                                        });
      // They have been read: in the same stream.
      if (options_.on_device) model_->ReleaseGradients();
      if (!step.ok()) return step.status();
      if (!computed->own.ok()) return computed->own;
      result.forward_seconds += step->forward_seconds;
      result.backward_seconds += step->backward_seconds;
      said_[kSamples] += samples;
      said_[kLoss] += samples * static_cast<float>(step->loss);
      begun = service::MonotonicNow();
    }
  }
  return absl::OkStatus();
}

void RingStep::WaitAll(Computed* computed) {
  for (const auto& [side, handle] : std::exchange(computed->under_way, {})) {
    const absl::Status waited = side->Wait(handle, options_.limit);
    if (computed->group.ok()) computed->group = waited;
  }
}

absl::Status RingStep::ShareSums(collective::Collective& group, std::uint32_t copies) {
  const auto size = static_cast<std::uint32_t>(group.size());
  const auto rank = static_cast<std::uint32_t>(group.rank());
  Computed computed;
  for (std::uint32_t copy = 1; copy < core::CopiesOf(copies, size); ++copy) {
    const std::uint32_t behind = (rank + copy) % size, ahead = (rank + size - copy) % size;
    for (std::size_t number = 0; number < buckets_.layout().parameter_buckets(); ++number) {
      const core::GradientLayout::Bucket& bucket = buckets_.layout().buckets()[number];
      const absl::Span<float> own = buckets_.values(core::PartOfBucket(bucket, rank, size));
      const absl::Span<float> theirs = buckets_.values(core::PartOfBucket(bucket, ahead, size));
      if (!own.empty()) computed.Start(group, group.StartSend(own, static_cast<int>(behind)));
      if (!theirs.empty()) computed.Start(group, group.StartReceive(theirs, static_cast<int>(ahead)));
    }
  }
  WaitAll(&computed);
  return computed.group;
}

absl::StatusOr<double> RingStep::SumSquares(collective::Collective& words, bool divided, bool* failed_here) {
  const auto size = static_cast<std::size_t>(words.size());
  const auto own = static_cast<std::size_t>(words.rank());
  const std::size_t buckets = buckets_.layout().parameter_buckets();
  std::vector<core::Range> parts;  // by rank, then bucket
  for (std::size_t rank = divided ? own : 0; rank < (divided ? own + 1 : size); ++rank) {
    for (std::size_t number = 0; number < buckets; ++number) {
      parts.push_back(core::PartOfBucket(buckets_.layout().buckets()[number], static_cast<std::uint32_t>(rank),
                                         static_cast<std::uint32_t>(size)));
    }
  }
  absl::StatusOr<std::vector<double>> squares_of_parts = buckets_.SumSquares(parts);
  *failed_here = !squares_of_parts.ok();
  if (!squares_of_parts.ok()) return squares_of_parts.status();
  std::vector<double> squares = *std::move(squares_of_parts);
  if (divided) {
    std::vector<double> all(size * buckets);
    std::copy(squares.begin(), squares.end(), all.begin() + static_cast<std::ptrdiff_t>(own * buckets));
    squares = std::move(all);
    std::vector<float> bits(2 * squares.size());
    std::memcpy(bits.data(), squares.data(), squares.size() * sizeof(double));
    const absl::Status told = words.AllGather(absl::MakeSpan(bits), options_.limit);
    if (!told.ok()) return told;
    std::memcpy(squares.data(), bits.data(), squares.size() * sizeof(double));
  }
  double sum = 0;
  for (std::size_t number = 0; number < buckets; ++number) {
    for (std::size_t rank = 0; rank < size; ++rank) sum += squares[rank * buckets + number];
  }
  return sum;
}

// Each of n ranks sends each value n - 1 times out of n when it is summed, and as often when it is gathered.
void RingStep::CountSent(const collective::Collective& group, std::uint64_t copies,
                         core::RingWorkerCore::StepResult* result) const {
  const auto size = static_cast<std::uint64_t>(group.size());
  const std::uint64_t all = buckets_.bytes();
  const std::uint64_t parameters = buckets_.layout().parameters() * sizeof(float);
  result->unencoded_bytes = (2 * (size - 1) * all + copies * parameters) / size;
  // What is gathered of a divided state is values, not gradients.
  const std::uint64_t halved = (divided_ ? 1 : 2) * (size - 1) * parameters / size;
  const bool halves = options_.travels == collective::Precision::kBfloat16;
  result->sent_bytes = result->unencoded_bytes - (halves ? halved / 2 : 0);
}

absl::StatusOr<RingStep::Sums> RingStep::Compute(const core::RingWork& work, const RingGroup& sides,
                                                 core::RingReplica* replica, bool* failed_here) {
  collective::Collective& group = *sides.values;
  Computed computed;
  divided_ = replica->divided();
  std::fill(said_.begin(), said_.end(), 0.0f);
  said_[kCut] = static_cast<float>(work.cut);
  buckets_.Begin();
  absl::Status own = ComputeOwn(work, *replica, sides, &computed);
  if (own.ok()) own = buckets_.CompleteAll();
  const core::Time begun = service::MonotonicNow();
  if (own.ok()) SendReady(group, /*waits=*/true, &computed);
  if (own.ok()) own = computed.own;
  *failed_here = !own.ok();
  if (!own.ok()) return own;
  if (computed.group.ok()) computed.Start(*sides.words, sides.words->StartAllReduce(absl::MakeSpan(said_)));
  WaitAll(&computed);
  if (!computed.group.ok()) return computed.group;
  if (divided_) {
    const absl::Status shared = ShareSums(group, replica->view().state_copies());
    if (!shared.ok()) return shared;
    replica->Prepare(work.updates);
  }
  // With a divided state whoever has heard all of it knows that all are prepared.
  const absl::StatusOr<double> squares = SumSquares(*sides.words, divided_, failed_here);
  if (!squares.ok()) return squares.status();
  // From here on every rank has the same, and does the same.
  Sums sums;
  sums.step.updates = work.updates;
  if (said_[kBad] != 0 || !std::isfinite(*squares)) sums.step.verdict = core::Verdict::kSkip;
  const double samples = std::max(1.0, static_cast<double>(said_[kSamples]));
  const double norm = std::sqrt(*squares) / samples;
  if (options_.clip_norm > 0 && norm > options_.clip_norm) sums.step.factor = options_.clip_norm / norm;
  sums.result.computed = computed.result;
  sums.result.computed.verdict = sums.step.verdict;
  sums.result.computed.loss = static_cast<double>(said_[kLoss]) / samples;
  sums.result.sum_took = service::MonotonicNow() - begun;
  sums.result.cut = static_cast<std::uint32_t>(said_[kCut]);
  CountSent(group, divided_ ? core::CopiesOf(replica->view().state_copies(), group.size()) - 1 : 0, &sums.result);
  return sums;
}

absl::Span<float> RingStep::SliceOf(const core::RingReplica& replica, std::uint32_t slice) {
  const core::Slice& part = replica.slices()[slice];
  return buckets_.values(part.tensor).subspan(part.offset, part.elements);
}

absl::Status RingStep::Exchange(const Sums& sums, collective::Collective& group, core::RingReplica* replica) {
  if (!divided_ || sums.step.verdict != core::Verdict::kApply) return absl::OkStatus();
  replica->UpdateHeld(sums.step, [&](std::uint32_t slice) { return SliceOf(*replica, slice); });
  Computed computed;
  for (std::size_t bucket = 0; computed.group.ok() && bucket < buckets_.layout().parameter_buckets(); ++bucket) {
    computed.Start(group, group.StartAllGather(buckets_.bucket(bucket)));
  }
  WaitAll(&computed);
  return computed.group;
}

absl::Status RingStep::Take(core::RingReplica* replica, Sums* sums) {
  replica->TakeStep(sums->step, [&](std::uint32_t slice) { return SliceOf(*replica, slice); });
  if (absl::Status loaded = LoadModel(replica, model_); !loaded.ok()) return loaded;
  const std::vector<core::UpdateId> next = replica->NextStep();
  const bool whole = next.empty() || next.front().dataset_epoch != sums->step.updates.front().dataset_epoch;
  if (!whole) return absl::OkStatus();
  if (absl::Status here = replica->ToHost(); !here.ok()) return here;
  sums->result.digest = DigestOf(*replica);
  return absl::OkStatus();
}

void RingStep::Finish(const core::TakenStep& as, core::RingReplica* replica) {
  const core::RingReplica::Step step = replica->PreparedStep(as);
  const auto values = [&](std::uint32_t slice) { return SliceOf(*replica, slice); };
  if (step.verdict == core::Verdict::kApply) {
    replica->UpdateHeld(step, values);
    replica->LoseOthers();
  }
  replica->TakeStep(step, values);
}

std::uint32_t DigestOf(const core::RingReplica& replica) {
  std::uint32_t digest = 0;
  replica.ForEachVector([&digest](absl::Span<const float> values) {
    digest =
        wire::Crc32c({reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)}, digest);
  });
  return digest;
}

absl::Status LoadModel(core::RingReplica* replica, model::Model* model) {
  if (const core::ReplicaVectors* const vectors = replica->vectors(); vectors != nullptr) {
    if (absl::Status there = replica->FromHost(); !there.ok()) return there;
    std::vector<const float*> values;
    for (std::size_t tensor = 0; tensor < model->tensors().size(); ++tensor) values.push_back(vectors->tensor(tensor));
    return model->SetDeviceParameters(values);
  }
  std::vector<float> whole;
  std::uint32_t slice = 0;
  for (std::size_t tensor = 0; tensor < model->tensors().size(); ++tensor) {
    const auto elements = static_cast<std::size_t>(model->tensors()[tensor].elements());
    if (replica->slices()[slice].elements == elements) {
      model->SetParameter(tensor, *replica->value(slice++));
      continue;
    }
    whole.clear();
    whole.reserve(elements);
    while (whole.size() < elements) {
      const auto part = replica->value(slice++);
      whole.insert(whole.end(), part->begin(), part->end());
    }
    model->SetParameter(tensor, whole);
  }
  return absl::OkStatus();
}

}  // namespace downpour::worker
