#include "trainer/core/ps_exchanges.h"

#include <algorithm>
#include <utility>

#include "trainer/core/message_size.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kMostBackoff = absl::Milliseconds(500);

}  // namespace

std::set<std::uint32_t> PsExchanges::SetView(const v1::View& view) {
  std::map<std::uint32_t, Member> members;
  std::set<std::uint64_t> sessions;
  for (const v1::PsMember& member : view.ps()) {
    members[member.index()] = {member.address(), member.session()};
    sessions.insert(member.session());
  }
  std::set<std::uint32_t> gone;
  for (const auto& [ps, member] : std::exchange(members_, std::move(members))) {
    if (sessions.count(member.session) == 0) gone.insert(ps);
  }
  for (const std::uint32_t ps : gone) links_.erase(ps);
  std::erase_if(under_way_, [&gone](const auto& exchange) { return gone.count(exchange.second.ps) != 0; });
  return gone;
}

void PsExchanges::Clear() {
  links_.clear();
  under_way_.clear();
}

Time PsExchanges::retry_at(std::uint32_t ps) const {
  const auto link = links_.find(ps);
  return link == links_.end() ? absl::ZeroDuration() : link->second.retry_at;
}

void PsExchanges::Begin(Exchange exchange, std::vector<Frame> frames, std::vector<ExchangeCall>* calls) {
  ExchangeCall call;
  call.call = next_call_++;
  call.ps = exchange.ps;
  const auto member = members_.find(exchange.ps);
  if (member != members_.end()) call.address = member->second.address;
  call.frames = std::move(frames);
  call.deadline = options_.deadline;
  ++links_[exchange.ps].in_flight;
  under_way_.emplace(call.call, std::move(exchange));
  calls->push_back(std::move(call));
}

void PsExchanges::Send(Kind kind, std::uint32_t ps, std::uint64_t token, const std::vector<Part>& parts,
                       absl::FunctionRef<Frame(std::uint32_t)> make, std::vector<ExchangeCall>* calls) {
  const Link& link = links_[ps];
  auto part = parts.begin();
  while (part != parts.end() && link.in_flight < options_.in_flight) {
    Exchange exchange{kind, ps, token, {}};
    std::vector<Frame> frames;
    std::size_t bytes = 0;
    const auto fits = [&](const Part& next) {
      return FitsMessage(frames.size() + 1, bytes + next.bytes, options_.payload_bytes);
    };
    while (part != parts.end() && (frames.empty() || fits(*part))) {
      bytes += part->bytes;
      frames.push_back(make(part->slice));
      exchange.slices.push_back(part->slice);
      ++part;
    }
    Begin(std::move(exchange), std::move(frames), calls);
  }
}

void PsExchanges::SendOne(Kind kind, std::uint32_t ps, std::uint64_t token, Frame frame,
                          std::vector<ExchangeCall>* calls) {
  std::vector<Frame> frames;
  frames.push_back(std::move(frame));
  Begin({kind, ps, token, {}}, std::move(frames), calls);
}

std::optional<PsExchanges::Exchange> PsExchanges::End(std::uint64_t call) {
  const auto found = under_way_.find(call);
  if (found == under_way_.end()) return std::nullopt;
  std::optional<Exchange> exchange = std::move(found->second);
  under_way_.erase(found);
  --links_[exchange->ps].in_flight;
  return exchange;
}

void PsExchanges::BackOff(std::uint32_t ps, Time now) {
  Link& link = links_[ps];
  link.backoff = std::clamp(link.backoff * 2, kFirstBackoff, kMostBackoff);
  link.retry_at = now + link.backoff;
}

std::vector<std::uint32_t> PsExchanges::GiveUp(Kind kind, std::uint64_t token) {
  std::vector<std::uint32_t> slices;
  std::erase_if(under_way_, [&](const auto& entry) {
    const Exchange& exchange = entry.second;
    if (exchange.kind != kind || exchange.token != token) return false;
    --links_[exchange.ps].in_flight;
    slices.insert(slices.end(), exchange.slices.begin(), exchange.slices.end());
    return true;
  });
  return slices;
}

}  // namespace downpour::core
