#ifndef DOWNPOUR_TESTS_SIMULATION_RESIDUAL_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_RESIDUAL_CHECKS_H_

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulation/process.h"
#include "tests/simulation/world.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/core/frame.h"

namespace downpour::simulation {

// What the codec of each worker has left out, counted apart from it by the pushes that arrive: each is its gradient and
// what was left out of all before that were applied, once. Where nobody can know whether a push was applied there are
// several residuals that the worker may have by now; the next push says which.
class ResidualChecks {
 public:
  // `steps`: mode SYNCHRONOUS, in which updates are executed twice.
  ResidualChecks(World* world, const core::CodecOptions& codec, bool steps)
      : world_(world), codec_(codec), steps_(steps) {}

  // The worker is about to send the push of a parameter.
  void OnSend(const Process& worker, const core::FrameHeader& push);
  // How each of its pushes so far has ended it knows, or will not hear any more.
  void OnUpdateDone(const Process& worker);
  void OnSessionOver(const Process& worker, std::uint64_t session);
  // A ps answered the push of a parameter, which is of `gradient`: applied, or a duplicate.
  void OnAnswer(const core::Frame& push, core::ReplyStatus status, const std::vector<float>& gradient);

  std::uint64_t flushed() const { return flushed_; }      // pushes that left nothing behind
  std::uint64_t forgotten() const { return forgotten_; }  // residuals that may have gone with a session

 private:
  struct Residual {
    std::set<std::vector<float>> may_be;
    std::set<std::pair<std::uint64_t, core::UpdateId>> applied;  // by this worker, in that session
    bool unsettled = false;                                      // a push was sent whose end the worker may not know
  };
  // By process, generation and slice.
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;
  Residual& Find(std::uint64_t process, std::uint64_t generation, std::uint32_t slice, std::size_t elements);

  World* world_;
  const core::CodecOptions codec_;
  const bool steps_;
  std::map<std::uint64_t, std::uint64_t> process_of_;  // by session, as far as it goes on
  std::map<Key, Residual> residuals_;
  // Pushes that were sent: session, generation, slice, update.
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, core::UpdateId>> sent_;
  std::uint64_t flushed_ = 0, forgotten_ = 0;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_RESIDUAL_CHECKS_H_
