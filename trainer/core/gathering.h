#ifndef DOWNPOUR_TRAINER_CORE_GATHERING_H_
#define DOWNPOUR_TRAINER_CORE_GATHERING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/layout_plan.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_registry.h"
#include "trainer/core/update_mode.h"

// What becomes of the newest history that there is, once ps have come with what they hold: whether it goes on, also
// without those that have not come, and under which view. Pure functions.
namespace downpour::core {

struct Gathered {
  enum class Kind {
    kWaits,   // somebody who has not come may still decide
    kGoesOn,  // under `view`
    kLost,    // what a ps held is nowhere else, or nobody can tell
  };
  Kind kind = Kind::kWaits;
  std::string reason;  // for people
  // The coordinator made this view or goes on with it already: what it knows of the history holds.
  bool own = false;
  // The newest, in another coordinator's case with the layout that it has without the ps that have not come.
  v1::View view;
  std::optional<NextLayout> change;  // kGoesOn: of the layout, if it is another one
};

// `newest`: the newest of the views that ps have brought and, if it has one, the coordinator of `incarnation` has.
// `ps`: those that have come. Each that has not ended lives, as it has promised to refuse older coordinators.
Gathered PlanGathered(const v1::View& newest, const PsRegistry& registry, PsConditions ps, std::uint32_t incarnation,
                      PlantedBug bug = PlantedBug::kNone);

// The view under which a coordinator of `incarnation` goes on, in this mode, with a history that another one made.
// `gathered`: what PlanGathered made of `newest`; `plan`: of its data. Every ps of it has come.
v1::View ResumedView(const v1::View& gathered, const v1::View& newest, const PsRegistry& registry, const DataPlan& plan,
                     const UpdateMode& mode, std::uint32_t incarnation, PlantedBug bug = PlantedBug::kNone);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_GATHERING_H_
