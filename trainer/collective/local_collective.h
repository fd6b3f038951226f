#ifndef DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_COLLECTIVE_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/collective/collective.h"

namespace downpour::collective {

// All ends, by rank, of a new group whose members are threads of this process, with values in the memory of the host.
// What all who take part have started is done by the threads that wait, whichever rank's, a piece at a time.
std::vector<std::unique_ptr<Collective>> NewLocalGroup(const std::string& view, int size);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_COLLECTIVE_H_
