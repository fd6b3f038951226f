#ifndef DOWNPOUR_TRAINER_TRACKING_TENSORBOARD_H_
#define DOWNPOUR_TRAINER_TRACKING_TENSORBOARD_H_

#include <memory>
#include <string>

#include "trainer/checkpoint/file_system.h"
#include "trainer/tracking/tracker.h"

namespace downpour::tracking {

struct TensorBoardOptions {
  // Of this job: TensorBoard shows what lies in it as one run. It is made where it is not there.
  std::string directory;
  // Ends the names of files; another for each process that writes into the directory.
  std::string suffix;
  checkpoint::FileSystem* files = nullptr;  // must outlive the tracker; null: this machine's
};

// Writes event files, docs/formats.md says how. A file is opened with the first points, and its name sorts behind the
// names of those that are there: TensorBoard goes on from one to the next, so a run that is resumed goes on at its
// step. Records are appended whole, and are with the system, not on the disk, when a call returns. After an error the
// file is left as it is, its last record cut off perhaps, and the next points open another.
std::unique_ptr<Tracker> MakeTensorBoardTracker(TensorBoardOptions options);

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_TENSORBOARD_H_
