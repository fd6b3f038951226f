#include "trainer/worker/ring_forming.h"

#include <bit>
#include <cstddef>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/host_port.h"
#include "trainer/collective/nccl_collective.h"
#include "trainer/collective/nccl_library.h"
#include "trainer/collective/tcp.h"
#include "trainer/cuda/plugin.h"
#include "trainer/wire/crc32c.h"
#include "trainer/worker/staged_collective.h"

namespace downpour::worker {
namespace {

absl::StatusOr<std::unique_ptr<collective::NcclApi>> LoadNcclFor(const model::Model& model) {
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
  if (!table.ok()) return table.status();
  return collective::LoadNccl(collective::NcclLibraryOptionsOf(**table, *model.cuda_device()));
}

// Of its place on the bus and of the machine, which containers have in common.
absl::StatusOr<std::uint32_t> DeviceNumber(collective::NcclApi& api) {
  std::string address;
  if (api.Address(&address) != collective::NcclResult::kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat("the address of a GPU: ", api.LastError()));
  }
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot, id);
  absl::StrAppend(&id, " ", address);
  return wire::Crc32c({reinterpret_cast<const std::uint8_t*>(id.data()), id.size()});
}

}  // namespace

RingTransport DecideTransport(const std::vector<RankNccl>& ranks) {
  if (ranks.size() == 1) return {false, "one worker sums nothing"};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].port == 0) {
      return {false, absl::StrCat("rank ", rank, " has not its gradients on a device with NCCL")};
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (ranks[other].device != ranks[rank].device) continue;
      return {false, absl::StrCat("ranks ", other, " and ", rank, " have one device, which NCCL does not take twice")};
    }
  }
  return {true, "every worker has its gradients on a device of its own, with NCCL"};
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
    if (loaded.ok()) {
      members.nccl_api = *std::move(loaded);
    } else {
      members.why_no_nccl = std::string(loaded.status().message());
    }
    given = members.nccl_api.get();
  }
  if (given == nullptr) return members;
  const absl::StatusOr<std::uint32_t> number = DeviceNumber(*given);
  if (!number.ok()) {
    members.why_no_nccl = std::string(number.status().message());
    return members;
  }
  const absl::StatusOr<HostPort> host = SplitHostPort(listen);
  if (!host.ok()) return host.status();
  collective::NcclOptions options;
  options.address = JoinHostPort(host->host, 0);
  absl::StatusOr<std::unique_ptr<collective::Member>> nccl = collective::NewNcclMember(given, options);
  if (!nccl.ok()) return nccl.status();
  members.nccl = *std::move(nccl);
  members.device = *number;
  return members;
}

absl::StatusOr<FormedRing> FormedRing::Form(const RingMembers& members, const RingDevice& device,
                                            const collective::GroupOptions& options) {
  FormedRing ring;
  absl::StatusOr<std::unique_ptr<collective::Collective>> tcp = members.tcp->Form(options);
  if (!tcp.ok()) return tcp.status();
  ring.tcp_ = *std::move(tcp);
  ring.sides_ = {ring.tcp_.get(), ring.tcp_.get(), false};
  std::vector<float> words(2 * static_cast<std::size_t>(options.size));
  float* const own = words.data() + 2 * static_cast<std::ptrdiff_t>(options.rank);
  own[0] = std::bit_cast<float>(static_cast<std::uint32_t>(members.nccl == nullptr ? 0 : members.nccl->port()));
  own[1] = std::bit_cast<float>(members.device);
  if (absl::Status told = ring.tcp_->AllGather(absl::MakeSpan(words), options.limit); !told.ok()) return told;
  std::vector<RankNccl> ranks;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    ranks.push_back({std::bit_cast<int>(words[i]), std::bit_cast<std::uint32_t>(words[i + 1])});
  }
  ring.transport_ = DecideTransport(ranks);
  if (ring.transport_.nccl) {
    collective::GroupOptions on_devices = options;
    on_devices.view = absl::StrCat(options.view, " by NCCL");
    const absl::StatusOr<HostPort> store = SplitHostPort(options.store);
    if (!store.ok()) return store.status();
    on_devices.store = JoinHostPort(store->host, ranks.front().port);
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
