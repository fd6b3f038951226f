#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_TRANSPORTS_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_TRANSPORTS_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/wire/transport.h"

// The transports as contract_test.cc sees them.
namespace downpour::wire {

class TestServer {
 public:
  virtual ~TestServer() = default;
  virtual const std::string& address() const = 0;
  virtual void Shutdown() = 0;  // of the data plane
  virtual TransportCounters counters() const = 0;
};

class TestTransport {
 public:
  virtual ~TestTransport() = default;
  virtual std::unique_ptr<TestServer> NewServer(DataHandler handler) = 0;
  virtual std::unique_ptr<DataClient> NewClient() = 0;
};

// Those that the program is linked with.
std::vector<std::string> TransportNames();
std::unique_ptr<TestTransport> NewTransport(const std::string& name);

// "shared_memory", in a directory of its own.
std::unique_ptr<TestTransport> NewSharedMemoryTransport();

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_TRANSPORTS_H_
