#include "cli/render/ring_text.h"

#include "absl/strings/str_cat.h"

namespace downpour::cli {

std::string RingText(const v1::RingProgress& ring) {
  std::string text = absl::StrCat(ring.members(), " of ", ring.wanted(), ring.wanted() == 1 ? " worker" : " workers");
  if (!ring.formed()) return text + ", not formed";
  if (ring.updates_per_step() == 0) return text;
  return absl::StrCat(text, ", ", ring.updates_per_step(), ring.updates_per_step() == 1 ? " update" : " updates",
                      " a step");
}

}  // namespace downpour::cli
