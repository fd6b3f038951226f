#ifndef DOWNPOUR_TRAINER_CORE_FRAME_ADMISSION_H_
#define DOWNPOUR_TRAINER_CORE_FRAME_ADMISSION_H_

#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/live_sessions.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_replicas.h"

namespace downpour::core {

// What a ps holds a worker's frame against.
struct FrameAdmission {
  const JobUid& job_uid;
  const v1::View& view;
  const LiveSessions& sessions;
  const PsReplicas& replicas;  // in that view
  bool thawed = false;         // by a planted bug: slices that are frozen are taken to be not
  PlantedBug bug = PlantedBug::kNone;

  // kNone: the frame may be carried out. Else what it is answered with, and nothing of it takes effect. What its
  // payload holds is not looked at.
  ReplyStatus Check(const Frame& frame) const;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_FRAME_ADMISSION_H_
