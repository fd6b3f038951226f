#include "trainer/core/ps_load.h"

#include <algorithm>

namespace downpour::core {
namespace {

// A share of the time: who is busy so long may keep workers waiting, as receiving and sending come to it.
constexpr double kBusy = 0.1;
constexpr double kClearly = 1.5;  // times what is in force
constexpr double kSlowest = 8;    // times the quickest; more is not believed

}  // namespace

void PsLoads::OnLayout(const std::map<std::uint32_t, std::uint64_t>& held) {
  if (held == held_) return;
  held_ = held;
  const auto gone = [this](const auto& known) { return held_.count(known.first) == 0; };
  std::erase_if(windows_, gone);
  std::erase_if(slowness_, gone);
  Restart();
}

void PsLoads::Restart() {
  for (auto& [ps, window] : windows_) {
    window.begun = window.ended;
    window.busy_then = window.busy_now;
  }
}

void PsLoads::OnStats(std::uint32_t ps, std::uint64_t session, double busy_seconds, Time now) {
  if (held_.count(ps) == 0) return;
  Window& window = windows_[ps];
  if (window.session != session) {
    slowness_.erase(ps);  // another process, on another machine maybe
    window = {session, now, now, busy_seconds, busy_seconds};
    return;
  }
  window.ended = now;
  window.busy_now = busy_seconds;
  const auto is_over = [this](const auto& held) {
    const auto known = windows_.find(held.first);
    return known != windows_.end() && known->second.ended - known->second.begun >= window_;
  };
  if (!std::all_of(held_.begin(), held_.end(), is_over)) return;
  Conclude();
  Restart();
}

void PsLoads::Conclude() {
  double all = 0, busiest = 0;
  for (const auto& [ps, bytes] : held_) {
    all += static_cast<double>(bytes);
    busiest = std::max(busiest, windows_.at(ps).share());
  }
  if (busiest < kBusy) return;
  // Of a ps that holds little, what each request costs says nothing of its bytes.
  std::map<std::uint32_t, double> measured;
  for (const auto& [ps, bytes] : held_) {
    if (2 * static_cast<double>(bytes * held_.size()) < all) continue;
    measured[ps] = windows_.at(ps).share() / static_cast<double>(bytes);
  }
  const auto slower = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto quickest = std::min_element(measured.begin(), measured.end(), slower);
  if (measured.size() < 2 || quickest->second <= 0) return;
  const double unit = quickest->second;
  for (auto& [ps, seconds] : measured) seconds = std::min(kSlowest, seconds / unit);
  const bool clearly = std::any_of(measured.begin(), measured.end(), [this](const auto& one) {
    const double before = slowness(one.first);
    return one.second >= kClearly * before || kClearly * one.second <= before;
  });
  if (!clearly) return;
  for (const auto& [ps, seconds] : measured) slowness_[ps] = seconds;
}

double PsLoads::slowness(std::uint32_t ps) const {
  const auto known = slowness_.find(ps);
  return known == slowness_.end() ? 1 : known->second;
}

}  // namespace downpour::core
