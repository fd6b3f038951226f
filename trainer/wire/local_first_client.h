#ifndef DOWNPOUR_TRAINER_WIRE_LOCAL_FIRST_CLIENT_H_
#define DOWNPOUR_TRAINER_WIRE_LOCAL_FIRST_CLIENT_H_

#include <memory>

#include "trainer/wire/shared_memory_transport.h"
#include "trainer/wire/transport.h"

namespace downpour::wire {

// Exchanges through shared memory with whoever is on this machine, and by `other` with everybody else. Each address is
// asked for in the directory of `local`; until that is answered, after an error there, and for what finds no space
// there, `other` it is. So an exchange that shared memory cannot carry is never lost nor held up by that; it may be
// carried out twice, as one whose reply is lost.
std::unique_ptr<DataClient> MakeLocalFirstDataClient(std::unique_ptr<SharedMemoryDataClient> local,
                                                     std::unique_ptr<DataClient> other);

// The same, or `other` alone where the options name no directory, or shared memory cannot be had, which is logged.
std::unique_ptr<DataClient> WithSharedMemory(SharedMemoryClientOptions options, std::unique_ptr<DataClient> other);

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_LOCAL_FIRST_CLIENT_H_
