#include "trainer/wire/testing/transports.h"

namespace downpour::wire {

std::vector<std::string> TransportNames() { return {"shared_memory"}; }

std::unique_ptr<TestTransport> NewTransport(const std::string&) { return NewSharedMemoryTransport(); }

}  // namespace downpour::wire
