#ifndef DOWNPOUR_TRAINER_CORE_SLICE_SNAPSHOT_H_
#define DOWNPOUR_TRAINER_CORE_SLICE_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"

namespace downpour::core {

// A vector of an optimizer, as many elements as the slice has; immutable while it is shared.
struct StateVector {
  std::string name;
  std::shared_ptr<const std::vector<float>> values;
};

struct StateScalar {
  std::string name;
  double value = 0;
};

// What an update rule remembers between two steps.
struct OptimizerState {
  std::string type;  // as the rule names itself
  std::vector<StateVector> vectors;
  std::vector<StateScalar> scalars;
};

// Takes what is called `name` out of `state`; null or none: it is not there.
inline std::shared_ptr<const std::vector<float>> TakeVector(OptimizerState& state, absl::string_view name) {
  std::shared_ptr<const std::vector<float>> values;
  std::erase_if(state.vectors, [&](StateVector& vector) {
    if (vector.name != name || vector.values == nullptr) return false;
    values = std::move(vector.values);
    return true;
  });
  return values;
}
inline std::optional<double> TakeScalar(OptimizerState& state, absl::string_view name) {
  std::optional<double> value;
  std::erase_if(state.scalars, [&](const StateScalar& scalar) {
    if (scalar.name != name) return false;
    value = scalar.value;
    return true;
  });
  return value;
}

// Everything of a slice at one moment: value, optimizer state, table of applied updates, version. Checkpoints are made
// of it. Shares its memory with the slice, which does not write what is shared.
struct SliceSnapshot {
  std::uint32_t number = 0;
  Slice slice;
  std::shared_ptr<const std::vector<float>> value;
  OptimizerState optimizer;
  v1::SliceLedger table;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SLICE_SNAPSHOT_H_
