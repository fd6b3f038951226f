#ifndef DOWNPOUR_TRAINER_CORE_SANDBLASTER_SEARCH_H_
#define DOWNPOUR_TRAINER_CORE_SANDBLASTER_SEARCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/sandblaster/lbfgs.h"

namespace downpour::core::sandblaster {

// The coordinator's side of mode SANDBLASTER (Dean et al. 2012, section 4.2), in one history: what the ps are to do
// with the vectors, and which dataset epoch, which is one evaluation, may be given out. Its state is soft: the slices
// keep what the search remembers with the newest command, and a command goes to all slices before the next one is
// made; so what was under way when an earlier coordinator ended is what the slice with the highest number says. Not
// thread-safe.
class Search {
 public:
  Search(const v1::View& view, const v1::LbfgsConfig& config);

  // Where the search is is known.
  bool known() const { return search_.has_value(); }
  // What the slices remember is no search of this job's, or they do not do as they are told.
  const absl::Status& error() const { return error_; }
  // Nothing is asked of the ps.
  bool settled() const { return known() && missing_.empty() && !search_->wants_sums(); }
  // For a directive to a ps whose slices have values.
  void Ask(v1::DirectRequest* directive) const;
  void Answer(const v1::VectorReply& reply);
  // So many dataset epochs are complete on every slice. True if that is news: there is another command.
  bool Advance(std::uint32_t complete_epochs);
  // Data shards of the dataset epochs before this one may be given out.
  std::uint32_t end_of_grants() const;
  // The value is the result, on every slice.
  bool done() const { return settled() && search_->done(); }
  // Once it is known.
  const Lbfgs& lbfgs() const { return *search_; }
  void Report(v1::ProgressReply* progress) const;

 private:
  void Begin();

  LbfgsOptions options_;
  std::set<std::uint32_t> slices_;   // of parameters
  std::set<std::uint32_t> missing_;  // that have not answered yet
  std::optional<Lbfgs> search_;
  absl::Status error_;
  std::vector<double> newest_;  // before it is known: what the slice with the highest number says
  // By slice, of the command at hand: added in this order whatever ps they are on.
  std::map<std::uint32_t, std::vector<double>> sums_;
};

}  // namespace downpour::core::sandblaster

#endif  // DOWNPOUR_TRAINER_CORE_SANDBLASTER_SEARCH_H_
