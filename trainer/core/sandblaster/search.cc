#include "trainer/core/sandblaster/search.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"

namespace downpour::core::sandblaster {

Search::Search(const v1::View& view, const v1::LbfgsConfig& config)
    : options_{.history = view.optimizer().history(),
               .gradient_tolerance = config.gradient_tolerance(),
               .max_iterations = config.max_iterations(),
               .max_evaluations = view.data().epochs(),
               .samples = static_cast<double>(view.data().sample_count())} {
  const absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  for (std::uint32_t number = 0; slices.ok() && number < slices->size(); ++number) {
    if (view.tensors(static_cast<int>((*slices)[number].tensor)).kind() != v1::BUFFER) slices_.insert(number);
  }
  missing_ = slices_;
}

void Search::Ask(v1::DirectRequest* directive) const {
  if (settled()) return;
  v1::VectorCommand* command = directive->mutable_vectors();
  if (known()) *command = search_->command();
}

void Search::Answer(const v1::VectorReply& reply) {
  // One to an earlier question may lack what is wanted now.
  if (settled() || reply.number() != (known() ? search_->number() : 0)) return;
  if (!known()) {
    if (!reply.search().empty() && (newest_.empty() || reply.search(0) > newest_[0])) {
      newest_.assign(reply.search().begin(), reply.search().end());
    }
    for (const v1::SliceSums& slice : reply.slices()) missing_.erase(slice.slice());
    if (missing_.empty()) Begin();
    return;
  }
  for (const v1::SliceSums& slice : reply.slices()) {
    if (slice.number() != search_->number() || missing_.erase(slice.slice()) == 0) continue;
    sums_[slice.slice()].assign(slice.sums().begin(), slice.sums().end());
  }
  if (!missing_.empty() || !search_->wants_sums()) return;
  std::vector<double> total;
  bool alike = true;
  for (const auto& [slice, sums] : sums_) {
    if (total.empty()) {
      total = sums;  // every slice has the losses of all samples
      continue;
    }
    alike = alike && sums.size() == total.size();
    if (!alike) break;
    total[1] = std::max(total[1], sums[1]);
    for (std::size_t i = kSumsBeforeProducts; i < total.size(); ++i) total[i] += sums[i];
  }
  if (!alike || !search_->OnSums(total)) {
    error_ = absl::InternalError(
        absl::StrCat("command ", search_->number(), " on vectors is answered with ", total.size(), " sums"));
    return;
  }
  sums_.clear();
  missing_ = slices_;
}

void Search::Begin() {
  if (newest_.empty()) {
    search_.emplace(options_);
    return;
  }
  absl::StatusOr<Lbfgs> search = Lbfgs::FromState(options_, newest_);
  if (search.ok()) {
    search_ = *std::move(search);
  } else {
    error_ = search.status();
  }
  missing_ = slices_;  // some may not have done it yet
}

bool Search::Advance(std::uint32_t complete_epochs) {
  if (!settled() || !search_->evaluates() || complete_epochs <= search_->evaluations()) return false;
  search_->OnEvaluated();
  missing_ = slices_;
  return true;
}

std::uint32_t Search::end_of_grants() const {
  if (!known()) return 0;
  return search_->evaluations() + (settled() && search_->evaluates() ? 1 : 0);
}

void Search::Report(v1::ProgressReply* progress) const {
  if (!known()) return;
  v1::SearchProgress* report = progress->mutable_search();
  report->set_iterations(search_->iterations());
  report->set_evaluations(search_->evaluations());
  report->set_loss(search_->value());
  report->set_gradient_norm(search_->gradient_norm());
  if (done()) report->set_outcome(search_->Describe());
}

}  // namespace downpour::core::sandblaster
