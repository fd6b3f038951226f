#ifndef DOWNPOUR_TRAINER_CORE_OPEN_CUT_H_
#define DOWNPOUR_TRAINER_CORE_OPEN_CUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/slice_state.h"

namespace downpour::core {

// The cut that is open, at one ps: of each of its slices every update with a lower number, and none with its own or a
// higher one (after Chandy and Lamport 1985, with the numbers of pushes in the place of markers). Nothing is held back
// for it: the first push of the cut or a later one forks a slice, and pushes of before it that come late are applied to
// the fork too. Not thread-safe.
class OpenCut {
 public:
  // Of the slices `numbers`. At most `extra_bytes_limit` of memory for forks; 0: as much as they take.
  OpenCut(const v1::CutOrder& order, std::set<std::uint32_t> numbers, std::uint64_t extra_bytes_limit);

  std::uint32_t cut() const { return cut_; }
  const std::string& checkpoint() const { return checkpoint_; }
  void Seal() { sealed_ = true; }
  bool failed() const { return !error_.empty(); }
  // Somebody is to write it: it is complete, and nobody does yet.
  bool due() const { return sealed_ && !failed() && !given_out_; }
  void GiveOut() { given_out_ = true; }

  // Before a push of the number `cut` that is not in the table is applied to `live`. False: the memory for forks is
  // used up, and the push has to come again; pushes of before the cut never have to, so it always comes to be sealed.
  bool BeforePush(SliceState& live, std::uint32_t cut);
  // The push of before the cut that was applied to a slice with a fork: to be applied to the fork alike. nullptr: there
  // is none, or the push is not of before the cut.
  SliceState* LatePush(std::uint32_t slice, std::uint32_t cut);

  // What of a slice is to be written, once it is sealed. With it the memory of the one before is taken to be free
  // again. kFailedPrecondition: it was taken before.
  absl::StatusOr<SliceSnapshot> Take(const SliceState& live);
  void OnWritten(const absl::StatusOr<v1::PsFiles>& files);

  v1::CutState state() const;

 private:
  std::uint32_t cut_;
  std::string checkpoint_;
  std::uint64_t extra_bytes_limit_;
  bool sealed_ = false;
  bool given_out_ = false;
  std::map<std::uint32_t, SliceState> forks_;
  std::set<std::uint32_t> remaining_;  // not taken yet
  std::uint64_t fork_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::optional<v1::PsFiles> files_;
  std::string error_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPEN_CUT_H_
