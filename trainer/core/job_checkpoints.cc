#include "trainer/core/job_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/checkpoint_name.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kFirstFindPause = absl::Milliseconds(500);
constexpr absl::Duration kMostFindPause = absl::Seconds(15);

CutOptions MakeCutOptions(const v1::TrainingConfig& config) {
  CutOptions options;
  if (config.checkpoint().interval_seconds() != 0) {
    options.interval = absl::Seconds(config.checkpoint().interval_seconds());
  }
  return options;
}

std::string TriedAgain(const std::string& error) {
  return error.empty() ? "" : absl::StrCat("; tried again after an error: ", error);
}

}  // namespace

JobCheckpoints::JobCheckpoints(const v1::TrainingConfig& config, std::uint32_t incarnation)
    : config_(config), incarnation_(incarnation), cuts_(MakeCutOptions(config)) {}

StoreCall& JobCheckpoints::AddCall(StoreCall::Kind kind) {
  StoreCall call;
  call.call = next_call_++;
  call.kind = kind;
  calls_.push_back(std::move(call));
  return calls_.back();
}

std::vector<StoreCall> JobCheckpoints::TakeStoreCalls() { return std::exchange(calls_, {}); }

void JobCheckpoints::OnStoreReply(std::uint64_t call, StoreReply reply, Time now) {
  if (call == find_call_ && search_ == Search::kAsked) {
    if (!reply.status.ok()) {
      // Nothing is begun anew because a store is away: what it holds is the job's work.
      find_error_ = std::string(reply.status.message());
      find_pause_ = std::clamp(find_pause_ * 2, kFirstFindPause, kMostFindPause);
      find_again_ = now + find_pause_;
      search_ = Search::kIdle;
      return;
    }
    find_error_.clear();
    find_pause_ = absl::ZeroDuration();
    found_ = std::move(reply.found);
    search_ = Search::kKnown;
    numbers_known_ = true;
    cuts_.NoteNumber(found_.highest_cut);
  } else if (call == begin_call_) {
    begin_call_ = 0;
    if (reply.status.ok()) {
      cuts_.OnStoreReady();
    } else {
      cuts_.OnStoreError(std::string(reply.status.message()), now);
    }
  } else if (call == commit_call_) {
    commit_call_ = 0;
    warning_ = reply.warning;
    if (reply.status.ok() && cuts_.phase() == Cuts::Phase::kCommitting) {
      newest_uri_ = absl::StrCat(config_.checkpoint().uri(), "/", cuts_.checkpoint());
      newest_updates_ = reply.manifest.updates();
      newest_bytes_ = reply.bytes;
      newest_took_ = now - cuts_.begun();
      newest_at_ = cuts_.announced_at();
    }
    cuts_.OnCommitted(reply.status, now);
  }
}

bool JobCheckpoints::Found(Time now) {
  if (search_ == Search::kIdle && now >= find_again_) {
    find_call_ = AddCall(StoreCall::Kind::kFind).call;
    search_ = Search::kAsked;
  }
  return search_ == Search::kKnown;
}

std::string JobCheckpoints::AwaitedOfStore() const {
  return absl::StrCat("looking for a checkpoint", TriedAgain(find_error_));
}

std::string JobCheckpoints::AwaitedOfPs() const {
  return absl::StrCat("loading the checkpoint ", beginning_uri_, TriedAgain(restore_waits_));
}

JobCheckpoints::Beginning JobCheckpoints::Seek(Time now) {
  if (!enabled()) return {absl::OkStatus(), std::nullopt};
  if (!Found(now)) return {absl::UnavailableError(AwaitedOfStore()), std::nullopt};
  absl::StatusOr<std::optional<FoundCheckpoint>> chosen = ChooseCheckpoint(found_, config_, unusable_);
  if (!chosen.ok()) return {chosen.status(), std::nullopt};
  return {absl::OkStatus(), *std::move(chosen)};
}

void JobCheckpoints::BeginHistory(const std::optional<FoundCheckpoint>& checkpoint,
                                  std::optional<std::uint64_t> updates, Time now) {
  cuts_.Abort(now);
  search_ = Search::kIdle;
  restoration_.reset();
  in_use_.clear();
  beginning_uri_.clear();
  restore_waits_.clear();
  final_wish_.reset();
  if (!enabled()) return;
  v1::Restoration restoration;
  for (std::string& skipped : SkippedFor(found_, checkpoint, unusable_)) restoration.add_skipped(std::move(skipped));
  if (checkpoint.has_value()) {
    beginning_uri_ = checkpoint->uri();
    if (checkpoint->store == config_.checkpoint().uri()) in_use_ = checkpoint->name;
    restoration.set_checkpoint(beginning_uri_);
    restoration.set_updates(checkpoint->manifest.updates());
  }
  if (updates.has_value()) {
    restoration.set_lost_updates(*updates - std::min(*updates, restoration.updates()));
    const bool newest = newest_at_.has_value() && newest_uri_ == beginning_uri_;
    if (newest) restoration.set_lost_seconds(absl::ToDoubleSeconds(now - *newest_at_));
  }
  if (checkpoint.has_value()) {
    newest_uri_ = beginning_uri_;
    newest_updates_ = checkpoint->manifest.updates();
    newest_at_ = now;
  }
  if (checkpoint.has_value() || restoration.skipped_size() > 0) restoration_ = std::move(restoration);
}

void JobCheckpoints::ResumeHistory(const v1::RestoreSource& source, Time now) {
  cuts_.Abort(now);
  restoration_.reset();
  final_wish_.reset();
  in_use_ = source.store() == config_.checkpoint().uri() ? source.checkpoint() : "";
  beginning_uri_ = source.checkpoint().empty() ? "" : absl::StrCat(source.store(), "/", source.checkpoint());
  if (beginning_uri_.empty() || !enabled()) return;
  restoration_.emplace();
  restoration_->set_checkpoint(beginning_uri_);
  restoration_->set_updates(source.updates());
}

void JobCheckpoints::OnRestoreError(const std::string& why) {
  if (!beginning_uri_.empty()) unusable_.emplace(beginning_uri_, why);
}

void JobCheckpoints::OnRequest(const std::string& request) {
  if (request.empty() || request == request_) return;
  request_ = request;
  request_wish_ = enabled() ? cuts_.Wish() : 0;
}

bool JobCheckpoints::FinalCutEnded() {
  if (!enabled()) return true;
  if (!final_wish_.has_value()) final_wish_ = cuts_.Wish();
  return cuts_.settled() >= *final_wish_;
}

void JobCheckpoints::Identify(const v1::ViewStamp& stamp, v1::CheckpointManifest* manifest) const {
  manifest->set_job_name(config_.job_name());
  manifest->set_job_uid(config_.job_uid());
  manifest->set_generation(stamp.generation());
  manifest->set_incarnation(incarnation_);
  manifest->set_cut(cuts_.number());
}

void JobCheckpoints::Step(Time now, const Situation& situation) {
  if (!enabled()) return;
  cuts_.StartClock(now);
  if (!numbers_known_ && !Found(now)) return;
  search_ = Search::kIdle;  // what was found before this training is not what a later history begins with
  if (situation.may_begin && cuts_.Due(now)) {
    cuts_.Begin(CheckpointName(cuts_.next(), situation.stamp.generation(), incarnation_, config_.job_uid()), now);
    StoreCall& begin = AddCall(StoreCall::Kind::kBegin);
    Identify(situation.stamp, &begin.manifest);
    begin_call_ = begin.call;
  }
  cuts_.Step(now, situation.members_version, situation.members_confirmed, situation.sessions);
  if (cuts_.commit_due()) {
    StoreCall& commit = AddCall(StoreCall::Kind::kCommit);
    commit_call_ = commit.call;
    commit.in_use = in_use_;
    v1::CheckpointManifest& manifest = commit.manifest;
    Identify(situation.stamp, &manifest);
    manifest.set_resumed_from(beginning_uri_);
    situation.describe(&manifest);
    for (v1::PsFiles& files : cuts_.TakeFilesToCommit()) *manifest.add_files() = std::move(files);
  }
}

Time JobCheckpoints::next_timer() const {
  if (!enabled()) return absl::InfiniteDuration();
  return std::min(cuts_.next_timer(), find_error_.empty() ? absl::InfiniteDuration() : find_again_);
}

void JobCheckpoints::Report(Time now, v1::ProgressReply* progress) const {
  if (restoration_.has_value()) *progress->mutable_restoration() = *restoration_;
  if (enabled()) {
    v1::CheckpointProgress* checkpoint = progress->mutable_checkpoint();
    checkpoint->set_newest(newest_uri_);
    checkpoint->set_newest_updates(newest_updates_);
    checkpoint->set_newest_bytes(newest_bytes_);
    if (newest_at_.has_value()) {
      checkpoint->set_newest_age_milliseconds(
          static_cast<std::uint64_t>(std::max<std::int64_t>(0, absl::ToInt64Milliseconds(now - *newest_at_))));
    }
    checkpoint->set_newest_milliseconds(static_cast<std::uint64_t>(absl::ToInt64Milliseconds(newest_took_)));
    checkpoint->set_written(cuts_.written());
    checkpoint->set_failed(cuts_.failed());
    checkpoint->set_error(!cuts_.error().empty() ? cuts_.error() : find_error_);
    checkpoint->set_extra_bytes(cuts_.extra_bytes());
    checkpoint->set_request(request_);
    if (!request_.empty()) {
      checkpoint->set_request_state(cuts_.settled() < request_wish_ ? v1::REQUEST_PENDING
                                    : cuts_.settled_well()          ? v1::REQUEST_DONE
                                                                    : v1::REQUEST_FAILED);
    }
    if (!warning_.empty()) progress->add_warnings(warning_);
  } else if (!request_.empty()) {
    progress->mutable_checkpoint()->set_request(request_);
    progress->mutable_checkpoint()->set_request_state(v1::REQUEST_FAILED);
    progress->mutable_checkpoint()->set_error("the job has no store");
  }
}

}  // namespace downpour::core
