#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/collective/collective.h"
#include "trainer/collective/fake.h"
#include "trainer/collective/tcp.h"

namespace downpour::collective {

// What makes members that reach each other; outlives them.
class Implementation {
 public:
  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  virtual ~Implementation() = default;
  virtual std::unique_ptr<Member> NewMember() = 0;
};

class FakeImplementation : public Implementation {
 public:
  std::unique_ptr<Member> NewMember() override { return network_.NewMember(); }

 private:
  FakeNetwork network_;
};

class TcpImplementation : public Implementation {
 public:
  std::unique_ptr<Member> NewMember() override { return NewTcpMember().value(); }
};

inline std::vector<std::string> ImplementationNames() { return {"fake", "tcp"}; }

inline std::unique_ptr<Implementation> NewImplementation(const std::string& name) {
  if (name == "fake") return std::make_unique<FakeImplementation>();
  return std::make_unique<TcpImplementation>();
}

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_
