#include "trainer/core/ps_states.h"

namespace downpour::core {

PsStates::PsStates(std::uint32_t count)
    : has_view_(count), initialised_(count), members_version_(count), watermark_(count), stats_(count) {}

void PsStates::Forget(std::uint32_t index) {
  has_view_.Set(index, false);
  initialised_.Set(index, false);
  members_version_.Set(index, 0);
  watermark_.Set(index, 0);
  stats_[index].Clear();
}

void PsStates::ForgetAll() {
  for (std::uint32_t index = 0; index < count(); ++index) Forget(index);
}

void PsStates::ForgetViews() {
  for (std::uint32_t index = 0; index < count(); ++index) {
    has_view_.Set(index, false);
    members_version_.Set(index, 0);
  }
}

void PsStates::Confirm(std::uint32_t index, const v1::DirectReply& reply) {
  has_view_.Set(index, true);
  initialised_.Set(index, reply.initialised());
  members_version_.Set(index, reply.members_version());
  watermark_.Set(index, reply.watermark());
}

}  // namespace downpour::core
