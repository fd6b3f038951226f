#include "trainer/collective/tcp.h"

#include <utility>

#include "trainer/collective/rendezvous.h"
#include "trainer/collective/tcp_collective.h"

namespace downpour::collective {
namespace {

class TcpMember : public Member {
 public:
  explicit TcpMember(std::unique_ptr<Rendezvous> rendezvous) : rendezvous_(std::move(rendezvous)) {}

  int port() const override { return rendezvous_->port(); }

  absl::StatusOr<std::unique_ptr<Collective>> Form(const GroupOptions& options) override {
    absl::StatusOr<Links> links = rendezvous_->Meet(options);
    if (!links.ok()) return links.status();
    return NewTcpCollective(options.rank, options.size, options.view, *std::move(links));
  }

 private:
  const std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Member>> NewTcpMember(const std::string& address) {
  absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous = NewRendezvous(address);
  if (!rendezvous.ok()) return rendezvous.status();
  return std::make_unique<TcpMember>(*std::move(rendezvous));
}

}  // namespace downpour::collective
