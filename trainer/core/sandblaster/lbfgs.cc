#include "trainer/core/sandblaster/lbfgs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core::sandblaster {
namespace {

// Nocedal and Wright's for quasi-Newton methods: enough of a decrease, and enough of the slope gone.
constexpr double kDecrease = 1e-4;
constexpr double kSlope = 0.9;
// Differences of a function that is a mean of float32 losses, below this part of it, are noise; then slopes alone
// decide, as in Hager and Zhang 2005, section 4.2 ("approximate Wolfe conditions").
constexpr double kNoise = 1e-6;
constexpr double kTrials = 20;
constexpr double kLeastWidth = 1e-9;  // of the interval, relative to its end
constexpr double kLeastCurvature = 1e-10;

// Where the cubic through both points, with their slopes, has its minimum (Nocedal and Wright, 3.59); not finite: it
// has none, or a point has none of these.
double CubicMinimum(double a, double value_a, double slope_a, double b, double value_b, double slope_b) {
  const double d1 = slope_a + slope_b - 3 * (value_a - value_b) / (a - b);
  const double square = d1 * d1 - slope_a * slope_b;
  if (!(square >= 0)) return std::numeric_limits<double>::quiet_NaN();
  const double d2 = std::copysign(std::sqrt(square), b - a);
  return b - (b - a) * (slope_b + d2 - d1) / (slope_b - slope_a + 2 * d2);
}

}  // namespace

Lbfgs::Lbfgs(LbfgsOptions options) : options_(options), factors_(1 + 2 * options.history) {}

std::size_t Lbfgs::StateSize(std::uint32_t history) { return kNumbers + 1 + std::size_t{2} * history; }

std::vector<double> Lbfgs::state() const {
  const auto numbers = std::bit_cast<std::array<double, kNumbers>>(state_);
  std::vector<double> state(numbers.begin(), numbers.end());
  state.insert(state.end(), factors_.begin(), factors_.end());
  return state;
}

absl::StatusOr<Lbfgs> Lbfgs::FromState(LbfgsOptions options, absl::Span<const double> state) {
  Lbfgs search(options);
  if (state.size() != StateSize(options.history)) {
    return absl::InvalidArgumentError(absl::StrCat("the state of a search has ", state.size(), " numbers, expected ",
                                                   StateSize(options.history), " with a history of ", options.history));
  }
  std::array<double, kNumbers> numbers{};
  std::copy_n(state.begin(), kNumbers, numbers.begin());
  search.state_ = std::bit_cast<State>(numbers);
  std::copy(state.begin() + kNumbers, state.end(), search.factors_.begin());
  const State& read = search.state_;
  const auto counts = [](double value, double most) {
    return value >= 0 && value <= most && value == std::floor(value);
  };
  constexpr double kMost = 1e15;
  if (!counts(read.number, kMost) || !counts(read.phase, 3) || !counts(read.outcome, 5) ||
      !counts(read.iterations, kMost) || !counts(read.evaluations, kMost) || !counts(read.pairs, options.history) ||
      !counts(read.next, options.history - 1)) {
    return absl::InvalidArgumentError("the state of a search has numbers out of range");
  }
  return search;
}

std::uint32_t Lbfgs::PairAt(std::uint32_t position) const {
  const auto pairs = static_cast<std::uint32_t>(state_.pairs);
  const auto next = static_cast<std::uint32_t>(state_.next);
  return (next + options_.history - pairs + position) % options_.history;
}

std::vector<std::uint32_t> Lbfgs::Basis() const {
  std::vector<std::uint32_t> basis = {kBaseGradient};
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(state_.pairs); ++i) {
    basis.push_back(StepVector(PairAt(i)));
    basis.push_back(ChangeVector(PairAt(i)));
  }
  return basis;
}

v1::VectorCommand Lbfgs::command() const {
  v1::VectorCommand command;
  command.set_number(number());
  if (number() == 0) return command;
  for (double number : state()) command.add_search(number);
  const auto sum = [&command](std::uint32_t target, std::initializer_list<std::pair<std::uint32_t, double>> terms) {
    v1::VectorSum* added = command.add_sums();
    added->set_target(target);
    for (const auto& [vector, factor] : terms) {
      v1::VectorTerm* term = added->add_terms();
      term->set_vector(vector);
      term->set_factor(factor);
    }
  };
  switch (phase()) {
    case Phase::kMeasure:
      sum(kGradient, {{kGradient, 1 / options_.samples}});
      command.add_products(kGradient);
      command.add_products(kDirection);
      break;
    case Phase::kAccept: {
      const std::vector<std::uint32_t> basis = Basis();
      if (basis.size() > 1) {
        const std::uint32_t pair = PairAt(static_cast<std::uint32_t>(state_.pairs) - 1);
        sum(StepVector(pair), {{kValue, 1}, {kBase, -1}});
        sum(ChangeVector(pair), {{kGradient, 1}, {kBaseGradient, -1}});
      }
      sum(kBase, {{kValue, 1}});
      sum(kBaseGradient, {{kGradient, 1}});
      command.mutable_products()->Add(basis.begin(), basis.end());
      break;
    }
    case Phase::kEvaluate:
      if (state_.fresh != 0) {
        const std::vector<std::uint32_t> basis = Basis();
        v1::VectorSum* direction = command.add_sums();
        direction->set_target(kDirection);
        for (std::size_t i = 0; i < basis.size(); ++i) {
          v1::VectorTerm* term = direction->add_terms();
          term->set_vector(basis[i]);
          term->set_factor(factors_[i]);
        }
      }
      sum(kValue, {{kBase, 1}, {kDirection, state_.step}});
      sum(kGradient, {});
      break;
    case Phase::kDone:
      if (state_.better == 0) sum(kValue, {{kBase, 1}});
      break;
  }
  return command;
}

void Lbfgs::Enter(Phase phase) {
  state_.phase = static_cast<double>(phase);
  ++state_.number;
}

void Lbfgs::OnEvaluated() {
  if (!evaluates()) return;
  ++state_.evaluations;
  Enter(Phase::kMeasure);
}

bool Lbfgs::OnSums(absl::Span<const double> sums) {
  const std::size_t vectors = phase() == Phase::kAccept ? Basis().size() : 2;
  if (!wants_sums() || sums.size() != kSumsBeforeProducts + vectors * (vectors + 1) / 2) return false;
  const absl::Span<const double> products = sums.subspan(kSumsBeforeProducts);
  if (phase() == Phase::kAccept) {
    ChooseDirection(products);
    return true;
  }
  state_.new_norm = sums[1];
  state_.new_length = std::sqrt(products[0]);
  Measure({state_.step, sums[0] / options_.samples, products[1]});
  return true;
}

void Lbfgs::End(Outcome outcome, const Point& trial, bool better) {
  state_.outcome = static_cast<double>(outcome);
  state_.better = better ? 1 : 0;
  if (better) {
    state_.value = trial.value;
    state_.norm = state_.new_norm;
  }
  Enter(Phase::kDone);
}

bool Lbfgs::Decreases(const Point& trial) const {
  if (!std::isfinite(trial.value) || !std::isfinite(trial.slope)) return false;
  if (trial.value <= state_.value + kDecrease * trial.step * state_.slope) return true;
  return trial.value <= state_.value + kNoise * std::abs(state_.value) &&
         trial.slope <= (2 * kDecrease - 1) * state_.slope;
}

void Lbfgs::Measure(const Point& trial) {
  const bool first = state_.evaluations == 1;
  const bool finite = std::isfinite(trial.value) && std::isfinite(state_.new_norm) && std::isfinite(state_.new_length);
  if (first && !finite) return End(Outcome::kNotFinite, trial, true);
  const bool wolfe = Decreases(trial) && std::abs(trial.slope) <= -kSlope * state_.slope;
  const bool last = state_.evaluations >= options_.max_evaluations;
  if (first || wolfe || state_.settles != 0) {
    if (!first) ++state_.iterations;
    if (state_.new_norm <= options_.gradient_tolerance) return End(Outcome::kConverged, trial, true);
    if (options_.max_iterations != 0 && iterations() >= options_.max_iterations) {
      return End(Outcome::kIterations, trial, true);
    }
    if (last) return End(Outcome::kEvaluations, trial, true);
    state_.value = trial.value;
    state_.norm = state_.new_norm;
    state_.euclidean = state_.new_length;
    if (!first) {
      state_.pairs = std::min<double>(state_.pairs + 1, options_.history);
      state_.next = static_cast<double>((static_cast<std::uint32_t>(state_.next) + 1) % options_.history);
    }
    return Enter(Phase::kAccept);
  }
  if (last) return End(Outcome::kEvaluations, trial, finite && trial.value < state_.value);
  ++state_.trials;
  if (state_.trials >= kTrials) return GiveUp();
  if (!finite) {
    // All that is known of it is that it is too far.
    Shrink({trial.step, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()});
  } else if (state_.zooms != 0) {
    Shrink(trial);
  } else {
    Bracket(trial);
  }
}

// Algorithm 3.5.
void Lbfgs::Bracket(const Point& trial) {
  const Point before = state_.low;
  if (!Decreases(trial) || (state_.trials > 1 && trial.value >= before.value)) return Shrink(trial);
  state_.low = trial;
  if (trial.slope >= 0) {
    state_.high = before;
    return Zoom();
  }
  const double width = trial.step - before.step;
  const double minimum = CubicMinimum(before.step, before.value, before.slope, trial.step, trial.value, trial.slope);
  const double most = trial.step + 4 * width;
  Try(minimum > trial.step ? std::clamp(minimum, trial.step + 1.1 * width, most) : most);
}

// Algorithm 3.6, after a trial; the first time the trial ends the interval.
void Lbfgs::Shrink(const Point& trial) {
  if (!Decreases(trial) || trial.value >= state_.low.value) {
    state_.high = trial;
  } else {
    if (trial.slope * (state_.high.step - state_.low.step) >= 0) state_.high = state_.low;
    state_.low = trial;
  }
  Zoom();
}

void Lbfgs::Zoom() {
  const Point& low = state_.low;
  const Point& high = state_.high;
  const double from = std::min(low.step, high.step);
  const double to = std::max(low.step, high.step);
  const double width = to - from;
  if (width <= kLeastWidth * to) return GiveUp();
  double next = CubicMinimum(low.step, low.value, low.slope, high.step, high.value, high.slope);
  // One that hardly shrinks is halved.
  const bool halve = state_.zooms != 0 && width > 2.0 / 3 * state_.width;
  if (halve || !std::isfinite(next)) {
    next = from + width / 2;
  } else {
    next = std::clamp(next, from + 0.1 * width, to - 0.1 * width);
  }
  state_.width = width;
  state_.zooms = 1;
  Try(next);
}

void Lbfgs::Try(double step) {
  state_.step = step;
  state_.fresh = 0;
  Enter(Phase::kEvaluate);
}

void Lbfgs::GiveUp() {
  if (state_.low.step > 0 && state_.low.value < state_.value) {
    // Better than the base, if not by all that was asked for: its gradient is not at hand any more.
    state_.settles = 1;
    return Try(state_.low.step);
  }
  if (state_.pairs == 0) return End(Outcome::kNoProgress, {}, false);
  GoDown();
}

void Lbfgs::GoDown() {
  state_.pairs = 0;
  state_.next = 0;
  std::fill(factors_.begin(), factors_.end(), 0);
  factors_[0] = -1;
  state_.slope = -state_.euclidean * state_.euclidean;
  state_.step = 1 / state_.euclidean;  // nothing is known about the scale
  state_.trials = state_.zooms = state_.settles = state_.width = 0;
  state_.low = state_.high = {0, state_.value, state_.slope};
  state_.fresh = 1;
  Enter(Phase::kEvaluate);
}

// The two loops of algorithm 7.4, on factors of the basis instead of vectors.
void Lbfgs::ChooseDirection(absl::Span<const double> products) {
  const std::size_t size = Basis().size();
  const auto product = [&](std::size_t i, std::size_t j) {
    if (i > j) std::swap(i, j);
    return products[i * size - i * (i + 1) / 2 + j];
  };
  auto pairs = static_cast<std::size_t>(state_.pairs);
  const auto step_of = [](std::size_t pair) { return 1 + 2 * pair; };
  const auto change_of = [](std::size_t pair) { return 2 + 2 * pair; };
  if (pairs > 0) {
    const std::size_t s = step_of(pairs - 1);
    const std::size_t y = change_of(pairs - 1);
    if (!(product(s, y) > kLeastCurvature * std::sqrt(product(s, s) * product(y, y)))) {
      // No curvature that the approximation could take up.
      --pairs;
      state_.pairs = static_cast<double>(pairs);
      state_.next =
          static_cast<double>((static_cast<std::uint32_t>(state_.next) + options_.history - 1) % options_.history);
    }
  }
  if (pairs == 0) return GoDown();
  std::vector<double> factors(1 + 2 * pairs);
  factors[0] = 1;
  const auto times = [&](std::size_t vector) {
    double result = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) result += factors[i] * product(i, vector);
    return result;
  };
  std::vector<double> alphas(pairs);
  for (std::size_t i = pairs; i-- > 0;) {
    alphas[i] = times(step_of(i)) / product(step_of(i), change_of(i));
    factors[change_of(i)] -= alphas[i];
  }
  const std::size_t newest = pairs - 1;
  const double scale = product(step_of(newest), change_of(newest)) / product(change_of(newest), change_of(newest));
  for (double& factor : factors) factor *= scale;
  for (std::size_t i = 0; i < pairs; ++i) {
    const double beta = times(change_of(i)) / product(step_of(i), change_of(i));
    factors[step_of(i)] += alphas[i] - beta;
  }
  for (double& factor : factors) factor = -factor;
  const double slope = times(0);
  if (!(slope < 0) || !std::isfinite(slope)) return GoDown();
  std::fill(factors_.begin(), factors_.end(), 0);
  std::copy(factors.begin(), factors.end(), factors_.begin());
  state_.slope = slope;
  state_.step = 1;
  state_.trials = state_.zooms = state_.settles = state_.width = 0;
  state_.low = state_.high = {0, state_.value, state_.slope};
  state_.fresh = 1;
  Enter(Phase::kEvaluate);
}

std::string Lbfgs::Describe() const {
  const std::string where = absl::StrCat(" after ", iterations(), " iterations and ", evaluations(),
                                         " evaluations: the greatest element of the gradient is ", gradient_norm(),
                                         ", gradientTolerance ", options_.gradient_tolerance);
  switch (outcome()) {
    case Outcome::kNone:
      break;
    case Outcome::kConverged:
      return "converged" + where;
    case Outcome::kIterations:
      return "not converged" + where + "; maxIterations are over";
    case Outcome::kEvaluations:
      return "not converged" + where + "; spec.training.epochs are over";
    case Outcome::kNoProgress:
      return "not converged" + where + "; no better point is found along the gradient";
    case Outcome::kNotFinite:
      return "the loss or its gradient is not finite with the initial values";
  }
  return "";
}

}  // namespace downpour::core::sandblaster
