#ifndef DOWNPOUR_TRAINER_CHECKPOINT_BEST_MODELS_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_BEST_MODELS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace downpour::checkpoint {

// What an evaluation said of a model.
struct MeasuredModel {
  double value = 0;              // of the metric
  std::uint32_t epoch = 0;       // so many were finished
  std::uint64_t evaluation = 0;  // unique in the job
};

// The best model of a job, in its output directory: while it trains, each evaluation that is better than all of which
// the model is there writes one, under a name of its own, and removes those that are worse. So whichever evaluations
// run at a time, in whatever processes: the best is never removed, and needs no lock. At the end it is given its name,
// and what an earlier job of the same name left is removed. Files of other jobs are left alone. Of equals the first is
// the best. Thread-safe: nothing but names is kept here.
class BestModels {
 public:
  // `metric`: of which more or less is better, see core::LessIsBetter.
  BestModels(std::string directory, std::string job_name, std::string job_uid, std::string metric);

  // Whether it is better than all that are there. Never of a value that is not finite.
  absl::StatusOr<bool> IsBest(const MeasuredModel& model) const;
  // Where it is to be written, with this in its header.
  std::string PathOf(const MeasuredModel& model) const;
  std::map<std::string, std::string> MetadataOf(const MeasuredModel& model) const;
  // Once it is there. What could not be removed, for people; empty: nothing.
  std::string RemoveWorse(const MeasuredModel& model) const;

  struct Kept {
    std::string path;
    MeasuredModel model;
    std::string warning;  // for people
  };
  // Gives the best its name, once no evaluation is to come. Done before, it is done. kNotFound: there is none.
  absl::StatusOr<Kept> Keep() const;

 private:
  struct Candidate {
    std::string path;
    MeasuredModel model;
  };
  bool Better(const MeasuredModel& a, const MeasuredModel& b) const;
  enum class Whose { kOwn, kEarlier };
  // nullopt: it is not there, not whole or another's.
  std::optional<MeasuredModel> Read(const std::string& path, Whose whose) const;
  absl::StatusOr<std::vector<Candidate>> Find(Whose whose = Whose::kOwn) const;
  std::string best_path() const;

  std::string directory_;
  std::string job_name_;
  std::string job_uid_;
  std::string metric_;
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_BEST_MODELS_H_
