#ifndef DOWNPOUR_TRAINER_CORE_SANDBLASTER_LBFGS_H_
#define DOWNPOUR_TRAINER_CORE_SANDBLASTER_LBFGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"

namespace downpour::core::sandblaster {

// Numbers of the vectors, as in control.proto.
enum Vector : std::uint32_t { kValue = 0, kGradient = 1, kBase = 2, kBaseGradient = 3, kDirection = 4 };
constexpr std::uint32_t StepVector(std::uint32_t pair) { return 5 + 2 * pair; }
constexpr std::uint32_t ChangeVector(std::uint32_t pair) { return 6 + 2 * pair; }

// Before the products: the sum of the losses, and the greatest element of the gradient.
inline constexpr std::size_t kSumsBeforeProducts = 2;

struct LbfgsOptions {
  std::uint32_t history = 10;
  double gradient_tolerance = 1e-5;
  std::uint32_t max_iterations = 0;   // 0: any number
  std::uint32_t max_evaluations = 1;  // of the function and its gradient
  double samples = 1;                 // that an evaluation sums over
};

// Minimises a mean over samples by L-BFGS with a line search for the strong Wolfe conditions (Nocedal and Wright 2006,
// algorithms 7.4, 3.5 and 3.6), without a vector of its own: it gives commands to whoever has them, and gets scalar
// products (Chen, Wang and Zhou 2014, "Large-scale L-BFGS using MapReduce"). It is always at one command, which is a
// function of its state, as everything is that follows: whoever has the state goes on the same. Not thread-safe.
class Lbfgs {
 public:
  enum class Outcome {
    kNone,
    kConverged,    // the gradient is small enough
    kIterations,   // all that may be
    kEvaluations,  // likewise
    kNoProgress,   // the line search finds no better point, also along the gradient
    kNotFinite,    // the function at the first point is not
  };

  explicit Lbfgs(LbfgsOptions options);
  // What state() was. kInvalidArgument: it is none for these options.
  static absl::StatusOr<Lbfgs> FromState(LbfgsOptions options, absl::Span<const double> state);
  std::vector<double> state() const;
  static std::size_t StateSize(std::uint32_t history);

  // The one that has to be done now, or was last. Number 0: nothing has to.
  v1::VectorCommand command() const;
  std::uint64_t number() const { return static_cast<std::uint64_t>(state_.number); }
  // Once command() is done, function and gradient at the value are wanted. OnEvaluated: they are there.
  bool evaluates() const { return phase() == Phase::kEvaluate; }
  void OnEvaluated();
  // Once command() is done, its sums over all slices are wanted; the greatest element is their maximum.
  bool wants_sums() const { return phase() == Phase::kMeasure || phase() == Phase::kAccept; }
  // False: these are not what is wanted; nothing has changed.
  bool OnSums(absl::Span<const double> sums);
  // The value is where an iteration ended, or where the first begins, and command() leaves it there.
  bool at_iteration_end() const { return phase() == Phase::kAccept; }
  // Once command() is done the value is the result. The outcome is one then.
  bool done() const { return phase() == Phase::kDone; }

  Outcome outcome() const { return static_cast<Outcome>(state_.outcome); }
  // For people; empty: it is not done.
  std::string Describe() const;
  std::uint32_t iterations() const { return static_cast<std::uint32_t>(state_.iterations); }
  std::uint32_t evaluations() const { return static_cast<std::uint32_t>(state_.evaluations); }
  // Where the newest iteration ended.
  double value() const { return state_.value; }
  double gradient_norm() const { return state_.norm; }

 private:
  enum class Phase { kEvaluate, kMeasure, kAccept, kDone };
  // A point of the line search: how far along the direction, the function there, and its slope along the direction.
  struct Point {
    double step = 0, value = 0, slope = 0;
  };
  // All of them doubles, as they travel.
  struct State {
    double number = 0;
    double phase = 0;
    double outcome = 0;
    double iterations = 0;
    double evaluations = 0;
    double pairs = 0;  // of the history
    double next = 0;   // the pair to be written next
    // At the base.
    double value = 0;
    double norm = 0;       // greatest element of the gradient
    double euclidean = 0;  // norm of the gradient
    double slope = 0;      // along the direction
    // The line search: the trial, and the interval of algorithm 3.6; before there is one, `low` is the trial before.
    double step = 0;
    double trials = 0;
    double zooms = 0;
    double settles = 0;  // the trial is taken as it is
    double fresh = 0;    // the direction is to be set
    double width = 0;    // of the interval, a trial ago
    Point low, high;
    double better = 0;    // with kDone: the trial is the result, not the base
    double new_norm = 0;  // of the trial, as norm and euclidean
    double new_length = 0;
  };

  static constexpr std::size_t kNumbers = sizeof(State) / sizeof(double);

  Phase phase() const { return static_cast<Phase>(state_.phase); }
  // Of the pairs from the oldest on.
  std::uint32_t PairAt(std::uint32_t position) const;
  // Vectors whose products are wanted, and that directions are made of.
  std::vector<std::uint32_t> Basis() const;
  void Enter(Phase phase);
  void End(Outcome outcome, const Point& trial, bool better);
  void Measure(const Point& trial);
  void Bracket(const Point& trial);
  void Shrink(const Point& trial);
  // The next trial, within the interval.
  void Zoom();
  void Try(double step);
  // The line search finds nothing.
  void GiveUp();
  void ChooseDirection(absl::Span<const double> products);
  // Along the gradient, without a history.
  void GoDown();
  bool Decreases(const Point& trial) const;

  LbfgsOptions options_;
  State state_;
  std::vector<double> factors_;  // of the direction, by Basis()
};

}  // namespace downpour::core::sandblaster

#endif  // DOWNPOUR_TRAINER_CORE_SANDBLASTER_LBFGS_H_
