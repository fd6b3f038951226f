#ifndef DOWNPOUR_CLI_RENDER_RING_TEXT_H_
#define DOWNPOUR_CLI_RENDER_RING_TEXT_H_

#include <string>

#include "downpour/v1/control.pb.h"

namespace downpour::cli {

// The workers of a job without parameter servers: "2 of 3 workers, 4 updates a step", "2 of 3 workers, not formed".
// Without the message. Pure.
std::string RingText(const v1::RingProgress& ring);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_RING_TEXT_H_
