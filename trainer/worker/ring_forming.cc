#include "trainer/worker/ring_forming.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/host_port.h"
#include "trainer/collective/nccl_collective.h"
#include "trainer/collective/nccl_library.h"
#include "trainer/collective/tcp.h"
#include "trainer/cuda/plugin.h"
#include "trainer/worker/staged_collective.h"

namespace downpour::worker {
namespace {

absl::StatusOr<std::unique_ptr<collective::NcclApi>> LoadNcclFor(const model::Model& model) {
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
  if (!table.ok()) return table.status();
  collective::NcclLibraryOptions options;
  options.device = *model.cuda_device();
  options.round = (*table)->round_bf16;
  options.widen = (*table)->widen_bf16;
  return collective::LoadNccl(options);
}

}  // namespace

RingTransport DecideTransport(const std::vector<bool>& without_nccl) {
  if (without_nccl.size() == 1) return {false, "one worker sums nothing"};
  const auto without = std::find(without_nccl.begin(), without_nccl.end(), true);
  if (without == without_nccl.end()) return {true, "every worker has its gradients on a device with NCCL"};
  return {false, absl::StrCat("rank ", without - without_nccl.begin(), " has not its gradients on a device with NCCL")};
}

absl::StatusOr<RingMembers> MakeRingMembers(const std::string& listen, const RingDevice& device,
                                            const model::Model& model, collective::NcclApi* given) {
  RingMembers members;
  absl::StatusOr<std::unique_ptr<collective::Member>> tcp = collective::NewTcpMember(listen);
  if (!tcp.ok()) return tcp.status();
  members.tcp = *std::move(tcp);
  if (!device.on_device) return members;
  if (given == nullptr && model.cuda_device().has_value()) {
    absl::StatusOr<std::unique_ptr<collective::NcclApi>> loaded = LoadNcclFor(model);
    if (loaded.ok()) members.nccl_api = *std::move(loaded);
    if (!loaded.ok()) members.why_no_nccl = std::string(loaded.status().message());
    given = members.nccl_api.get();
  }
  if (given == nullptr) return members;
  const absl::StatusOr<HostPort> host = SplitHostPort(listen);
  if (!host.ok()) return host.status();
  collective::NcclOptions options;
  options.address = JoinHostPort(host->host, 0);
  absl::StatusOr<std::unique_ptr<collective::Member>> nccl = collective::NewNcclMember(given, options);
  if (!nccl.ok()) return nccl.status();
  members.nccl = *std::move(nccl);
  return members;
}

absl::StatusOr<FormedRing> FormedRing::Form(const RingMembers& members, const RingDevice& device,
                                            const collective::GroupOptions& options) {
  FormedRing ring;
  absl::StatusOr<std::unique_ptr<collective::Collective>> tcp = members.tcp->Form(options);
  if (!tcp.ok()) return tcp.status();
  ring.tcp_ = *std::move(tcp);
  ring.sides_ = {ring.tcp_.get(), ring.tcp_.get(), false};
  // Of each rank the port at which its NCCL is met; 0: it has none. Exact as a float.
  std::vector<float> ports(static_cast<std::size_t>(options.size));
  ports[static_cast<std::size_t>(options.rank)] =
      members.nccl == nullptr ? 0.0f : static_cast<float>(members.nccl->port());
  if (absl::Status told = ring.tcp_->AllGather(absl::MakeSpan(ports), options.limit); !told.ok()) return told;
  std::vector<bool> without;
  for (const float port : ports) without.push_back(port == 0);
  ring.transport_ = DecideTransport(without);
  if (ring.transport_.nccl) {
    collective::GroupOptions on_devices = options;
    on_devices.view = absl::StrCat(options.view, " by NCCL");
    const absl::StatusOr<HostPort> store = SplitHostPort(options.store);
    if (!store.ok()) return store.status();
    on_devices.store = JoinHostPort(store->host, static_cast<int>(ports.front()));
    absl::StatusOr<std::unique_ptr<collective::Collective>> nccl = members.nccl->Form(on_devices);
    if (!nccl.ok()) return nccl.status();
    ring.nccl_ = *std::move(nccl);
    ring.sides_.values = ring.nccl_.get();
  } else if (device.on_device && options.size > 1) {
    ring.staged_ = StageValues(ring.tcp_.get(), device.kernels.get(), StagedIn::kHost);
    ring.sides_.values = ring.staged_.get();
    ring.sides_.waits_for_device = true;
  }
  return ring;
}

FormedRing& FormedRing::operator=(FormedRing&& other) noexcept {
  nccl_ = std::move(other.nccl_);
  tcp_ = std::move(other.tcp_);
  staged_ = std::move(other.staged_);
  sides_ = other.sides_;
  transport_ = std::move(other.transport_);
  return *this;
}

void FormedRing::Abort() const {
  if (tcp_ != nullptr) tcp_->Abort();
  if (nccl_ != nullptr) nccl_->Abort();
}

}  // namespace downpour::worker
