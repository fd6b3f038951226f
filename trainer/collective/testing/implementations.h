#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/collective/collective.h"
#include "trainer/collective/fake.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/collective/local.h"
#include "trainer/collective/nccl_collective.h"
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
  // Once its members are gone: what is wrong below them; "": nothing that is known.
  virtual std::string Complaints() const { return ""; }
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

// Over a fake of NCCL and of the devices.
class NcclImplementation : public Implementation {
 public:
  std::unique_ptr<Member> NewMember() override {
    devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
    return NewNcclMember(devices_.back().get()).value();
  }
  std::string Complaints() const override { return nccl_.Complaints() + nccl_.Leaks(); }

 private:
  FakeNccl nccl_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
};

// Inside one process, in the memory of the host.
class LocalImplementation : public Implementation {
 public:
  std::unique_ptr<Member> NewMember() override { return network_.NewMember(); }

 private:
  LocalNetwork network_;
};

// Inside one process, each a device.
class LocalNcclImplementation : public Implementation {
 public:
  std::unique_ptr<Member> NewMember() override {
    devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
    return NewNcclMember(devices_.back().get(), {}, network_.NewRendezvous());
  }
  std::string Complaints() const override { return nccl_.Complaints() + nccl_.Leaks(); }

 private:
  FakeNccl nccl_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
  LocalNetwork network_;
};

inline std::vector<std::string> ImplementationNames() { return {"fake", "local", "local_nccl", "nccl", "tcp"}; }

inline std::unique_ptr<Implementation> NewImplementation(const std::string& name) {
  if (name == "fake") return std::make_unique<FakeImplementation>();
  if (name == "local") return std::make_unique<LocalImplementation>();
  if (name == "local_nccl") return std::make_unique<LocalNcclImplementation>();
  if (name == "nccl") return std::make_unique<NcclImplementation>();
  return std::make_unique<TcpImplementation>();
}

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TESTING_IMPLEMENTATIONS_H_
