#ifndef DOWNPOUR_TRAINER_CORE_SANDBLASTER_VECTORS_H_
#define DOWNPOUR_TRAINER_CORE_SANDBLASTER_VECTORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/optimizer.h"

namespace downpour::core::sandblaster {

inline constexpr std::uint32_t kMostHistory = 100;

// A slice's part of the vectors of the search, but for the value. A step adds a gradient, weighted by its samples, and
// does not touch the value; commands do. The gradient is kept as the sum of two floats, as precise as a double: so the
// order in which updates come is not seen in the result. Not thread-safe.
class Vectors final : public Optimizer {
 public:
  Vectors(std::uint32_t history, std::uint32_t elements);

  // `updated` is not written.
  void Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
            absl::Span<float> updated) override;
  bool writes_value() const override { return false; }
  // The function is not finite at this value.
  void Skip() override;

  std::string type() const override { return type_; }
  std::size_t vectors() const override { return vectors_.size(); }
  OptimizerState Export() const override;
  absl::Status Import(const OptimizerState& state) override;
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Vectors>(*this); }
  Vectors* search_vectors() override { return this; }
  const Vectors* search_vectors() const override { return this; }

  // Of the newest command carried out; 0: none was.
  std::uint64_t number() const { return number_; }
  // What that command brought along, and what it was asked for. Sums are not part of what is exported.
  const std::vector<double>& search() const { return search_; }
  const std::vector<double>& sums() const { return sums_; }
  // Another replica of the slice has come to these.
  void SetSums(std::vector<double> sums) { sums_ = std::move(sums); }
  // Whether it makes another value.
  static bool SetsValue(const v1::VectorCommand& command);
  // kInvalidArgument: a vector that is not here, or another length of what is remembered; then nothing has changed.
  absl::Status Check(const v1::VectorCommand& command) const;
  // Once it is checked, a command that it has not carried out yet. `value` is written only if it sets the value.
  void CarryOut(const v1::VectorCommand& command, absl::Span<float> value);

 private:
  struct Vector {
    std::string name;
    std::shared_ptr<std::vector<float>> values;  // written only while nobody else refers to it
  };
  float* Writable(std::uint32_t vector);
  // `count` elements from `first` on, as doubles.
  void Load(std::uint32_t vector, const float* value, std::size_t first, std::size_t count, double* to) const;
  void Sum(const v1::VectorSum& sum, absl::Span<float> value);
  void FormProducts(const v1::VectorCommand& command, absl::Span<const float> value);

  std::string type_;
  std::size_t elements_;
  // By number; in the place of the value, which is not here, what the float32 of the gradient leaves out.
  std::vector<Vector> vectors_;
  double loss_ = 0;  // times the samples, of all updates
  std::uint64_t number_ = 0;
  std::vector<double> search_;
  std::vector<double> sums_;
};

}  // namespace downpour::core::sandblaster

#endif  // DOWNPOUR_TRAINER_CORE_SANDBLASTER_VECTORS_H_
