#include "operator/planner/training_course.h"

#include <string>

#include "operator/planner/status.h"

namespace downpour::planner {

void UpdateTrainingCourse(Context& context) {
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || report->training == context.status.training) return;
  const api::TrainingStatus known = context.status.training.value_or(api::TrainingStatus());
  context.status.training = report->training;
  if (!report->training.has_value()) return;
  const auto tell = [&context](const char* event, const std::string& before, const std::string& now) {
    if (!now.empty() && now != before) context.Emit(false, event, now);
  };
  tell("StoppedEarly", known.stop_reason, report->training->stop_reason);
  tell("LearningRateReduced", known.rate_reason, report->training->rate_reason);
}

}  // namespace downpour::planner
