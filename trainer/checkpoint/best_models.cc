#include "trainer/checkpoint/best_models.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/core/training_monitor.h"

namespace downpour::checkpoint {
namespace {

constexpr char kPrefix[] = "best-epoch-";
constexpr char kSuffix[] = ".safetensors";
constexpr char kJob[] = "job";
constexpr char kJobUid[] = "job_uid";
constexpr char kMetric[] = "metric";
constexpr char kValue[] = "value";
constexpr char kEpoch[] = "epoch";
constexpr char kEvaluation[] = "evaluation";

void Remove(const std::string& path, std::string* warning) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) *warning = absl::StrCat(path, ": cannot be removed: ", error.message());
}

absl::StatusOr<std::uint64_t> BytesOfDtype(const std::string& /*dtype*/) { return sizeof(float); }

// Of a file that is whole.
std::optional<std::map<std::string, std::string>> ReadMetadata(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(file, size, BytesOfDtype);
  return header.ok() ? std::optional(std::move(header->metadata)) : std::nullopt;
}

}  // namespace

std::optional<MeasuredModel> BestModels::Read(const std::string& path, Whose whose) const {
  const auto metadata = ReadMetadata(path);
  const auto text = [&metadata](const char* key) {
    const auto found = metadata->find(key);
    return found == metadata->end() ? std::string() : found->second;
  };
  if (!metadata.has_value() || text(kJob) != job_name_) return std::nullopt;
  const bool own = text(kJobUid) == job_uid_ && text(kMetric) == metric_;
  if (own != (whose == Whose::kOwn)) return std::nullopt;
  MeasuredModel model;
  const bool sound = absl::SimpleAtod(text(kValue), &model.value) && absl::SimpleAtoi(text(kEpoch), &model.epoch) &&
                     absl::SimpleAtoi(text(kEvaluation), &model.evaluation);
  return sound && std::isfinite(model.value) ? std::optional(model) : std::nullopt;
}

BestModels::BestModels(std::string directory, std::string job_name, std::string job_uid, std::string metric)
    : directory_(std::move(directory)),
      job_name_(std::move(job_name)),
      job_uid_(std::move(job_uid)),
      metric_(std::move(metric)) {}

bool BestModels::Better(const MeasuredModel& a, const MeasuredModel& b) const {
  const double sign = core::LessIsBetter(metric_) ? 1 : -1;
  return std::tuple(sign * a.value, a.epoch, a.evaluation) < std::tuple(sign * b.value, b.epoch, b.evaluation);
}

std::string BestModels::best_path() const { return absl::StrCat(directory_, "/best", kSuffix); }

std::string BestModels::PathOf(const MeasuredModel& model) const {
  return absl::StrCat(directory_, "/", kPrefix, model.epoch, "-", model.evaluation, kSuffix);
}

std::map<std::string, std::string> BestModels::MetadataOf(const MeasuredModel& model) const {
  return {{kJob, job_name_},
          {kJobUid, job_uid_},
          {kMetric, metric_},
          {kValue, absl::StrFormat("%.17g", model.value)},
          {kEpoch, absl::StrCat(model.epoch)},
          {kEvaluation, absl::StrCat(model.evaluation)}};
}

absl::StatusOr<std::vector<BestModels::Candidate>> BestModels::Find(Whose whose) const {
  std::error_code error;
  std::vector<Candidate> found;
  std::filesystem::directory_iterator entries(directory_, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (!absl::StartsWith(name, kPrefix) || !absl::EndsWith(name, kSuffix)) continue;
    const std::optional<MeasuredModel> model = Read(entries->path().string(), whose);
    if (model.has_value()) found.push_back({entries->path().string(), *model});
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(directory_, ": cannot be listed"));
  return found;
}

absl::StatusOr<bool> BestModels::IsBest(const MeasuredModel& model) const {
  if (!std::isfinite(model.value)) return false;
  const absl::StatusOr<std::vector<Candidate>> found = Find();
  if (!found.ok()) return found.status();
  return std::none_of(found->begin(), found->end(),
                      [&](const Candidate& other) { return !Better(model, other.model); });
}

std::string BestModels::RemoveWorse(const MeasuredModel& model) const {
  const absl::StatusOr<std::vector<Candidate>> found = Find();
  if (!found.ok()) return std::string(found.status().message());
  std::string warning;
  for (const Candidate& other : *found) {
    if (Better(model, other.model)) Remove(other.path, &warning);
  }
  return warning;
}

absl::StatusOr<BestModels::Kept> BestModels::Keep() const {
  absl::StatusOr<std::vector<Candidate>> found = Find();
  if (!found.ok()) return found.status();
  // Whoever began with this before may have ended in the middle.
  if (const std::optional<MeasuredModel> kept = Read(best_path(), Whose::kOwn); kept.has_value()) {
    found->push_back({best_path(), *kept});
  }
  const auto best = std::min_element(found->begin(), found->end(), [this](const Candidate& a, const Candidate& b) {
    return Better(a.model, b.model);
  });
  if (best == found->end()) {
    return absl::NotFoundError(
        absl::StrCat(directory_, ": found no model of an evaluation with a finite ", metric_, " to keep"));
  }
  std::error_code error;
  if (best->path != best_path()) std::filesystem::rename(best->path, best_path(), error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat(best->path, ": cannot be given the name ", best_path()));
  }
  Kept kept{best_path(), best->model, RemoveWorse(best->model)};
  found = Find(Whose::kEarlier);
  if (!found.ok()) return found.status();
  for (const Candidate& other : *found) Remove(other.path, &kept.warning);
  return kept;
}

}  // namespace downpour::checkpoint
