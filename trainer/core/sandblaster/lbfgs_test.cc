#include "trainer/core/sandblaster/lbfgs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::core::sandblaster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Values = std::vector<double>;

struct Evaluation {
  double value = 0;
  Values gradient;
};

struct Problem {
  std::function<Evaluation(const Values&)> evaluate;
  Values start;
};

// Carries out commands on vectors of doubles.
class PlainVectors {
 public:
  explicit PlainVectors(const Problem& problem) : problem_(problem) { vectors_[kValue] = problem.start; }

  // Everything that is not there yet is zero.
  Values& At(std::uint32_t vector) {
    Values& values = vectors_[vector];
    values.resize(problem_.start.size());
    return values;
  }
  Values CarryOut(const v1::VectorCommand& command) {
    for (const v1::VectorSum& sum : command.sums()) {
      Values total(problem_.start.size());
      for (const v1::VectorTerm& term : sum.terms()) {
        const Values& vector = At(term.vector());
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += term.factor() * vector[i];
      }
      if (sum.terms().empty() && sum.target() == kGradient) loss_ = 0;
      At(sum.target()) = total;
    }
    if (command.products().empty()) return {};
    Values sums = {loss_, 0};
    for (double element : At(kGradient)) sums[1] = std::max(sums[1], std::abs(element));
    for (int i = 0; i < command.products_size(); ++i) {
      for (int j = i; j < command.products_size(); ++j) {
        const Values& a = At(command.products(i));
        const Values& b = At(command.products(j));
        sums.push_back(std::inner_product(a.begin(), a.end(), b.begin(), 0.0));
      }
    }
    return sums;
  }
  void Evaluate() {
    const Evaluation evaluation = problem_.evaluate(At(kValue));
    loss_ = evaluation.value;
    At(kGradient) = evaluation.gradient;
  }

 private:
  const Problem& problem_;
  std::map<std::uint32_t, Values> vectors_;
  double loss_ = 0;
};

struct Result {
  Lbfgs search;
  Values value;
};

Result Minimise(const Problem& problem, LbfgsOptions options) {
  Lbfgs search(options);
  PlainVectors vectors(problem);
  while (!search.done()) {
    const std::uint64_t number = search.number();
    if (search.evaluates()) {
      vectors.Evaluate();
      search.OnEvaluated();
    } else {
      EXPECT_TRUE(search.OnSums(vectors.CarryOut(search.command())));
    }
    EXPECT_EQ(search.number(), number + 1);
    if (search.evaluates() || search.done()) vectors.CarryOut(search.command());
  }
  return {search, vectors.At(kValue)};
}

// The problems of scipy_reference.py.

double Number(std::uint64_t index) {
  std::uint64_t z = index * 0x9E3779B97F4A7C15u + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1;
}

Problem Quadratic(std::size_t size, double condition) {
  return {[=](const Values& x) {
            Evaluation result{0, Values(size)};
            for (std::size_t i = 0; i < size; ++i) {
              const double scale = std::pow(condition, static_cast<double>(i) / static_cast<double>(size - 1));
              const double distance = x[i] - Number(i);
              result.value += 0.5 * scale * distance * distance;
              result.gradient[i] = scale * distance;
            }
            return result;
          },
          Values(size)};
}

Problem Logistic(std::size_t samples, std::size_t features, double decay) {
  Values inputs(samples * features);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = Number(1000 + i);
  Values signs(samples);
  for (std::size_t sample = 0; sample < samples; ++sample) {
    double margin = Number(500 + sample);
    for (std::size_t i = 0; i < features; ++i) margin += inputs[sample * features + i] * Number(i);
    signs[sample] = margin > 0 ? 1 : -1;
  }
  return {[=](const Values& x) {
            Evaluation result{0, Values(features)};
            for (std::size_t sample = 0; sample < samples; ++sample) {
              const double* const input = &inputs[sample * features];
              const double margin = signs[sample] * std::inner_product(x.begin(), x.end(), input, 0.0);
              result.value += (margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin) /
                              static_cast<double>(samples);
              const double weight = -signs[sample] / (1 + std::exp(margin)) / static_cast<double>(samples);
              for (std::size_t i = 0; i < features; ++i) result.gradient[i] += weight * input[i];
            }
            for (std::size_t i = 0; i < features; ++i) {
              result.value += 0.5 * decay * x[i] * x[i];
              result.gradient[i] += decay * x[i];
            }
            return result;
          },
          Values(features)};
}

Problem Rosenbrock(std::size_t size) {
  Values start(size);
  for (std::size_t i = 0; i < size; ++i) start[i] = i % 2 == 0 ? -1.2 : 1;
  return {[=](const Values& x) {
            Evaluation result{0, Values(size)};
            for (std::size_t i = 0; i + 1 < size; ++i) {
              const double bend = x[i + 1] - x[i] * x[i];
              result.value += 100 * bend * bend + (1 - x[i]) * (1 - x[i]);
              result.gradient[i] += -400 * bend * x[i] - 2 * (1 - x[i]);
              result.gradient[i + 1] += 200 * bend;
            }
            return result;
          },
          start};
}

// tanh(inputs V) w against what another network of the kind says; x holds V by rows, then w.
Problem Network(std::size_t samples, std::size_t features, std::size_t hidden, double decay) {
  const std::size_t size = features * hidden;
  Values inputs(samples * features);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = Number(1000 + i);
  const auto units_of = [=](const Values& x, std::size_t sample) {
    Values units(hidden);
    for (std::size_t i = 0; i < features; ++i) {
      for (std::size_t unit = 0; unit < hidden; ++unit) {
        units[unit] += inputs[sample * features + i] * x[i * hidden + unit];
      }
    }
    for (double& unit : units) unit = std::tanh(unit);
    return units;
  };
  const auto output_of = [=](const Values& x, const Values& units) {
    return std::inner_product(units.begin(), units.end(), x.begin() + static_cast<std::ptrdiff_t>(size), 0.0);
  };
  Values start(size + hidden), other(size + hidden), targets(samples);
  for (std::size_t i = 0; i < start.size(); ++i) {
    start[i] = 0.5 * Number(300 + i);
    other[i] = 2 * Number(i);
  }
  for (std::size_t sample = 0; sample < samples; ++sample) targets[sample] = output_of(other, units_of(other, sample));
  return {[=](const Values& x) {
            Evaluation result{0, Values(x.size())};
            const auto count = static_cast<double>(samples);
            for (std::size_t sample = 0; sample < samples; ++sample) {
              const Values units = units_of(x, sample);
              const double error = output_of(x, units) - targets[sample];
              result.value += 0.5 * error * error / count;
              for (std::size_t unit = 0; unit < hidden; ++unit) {
                result.gradient[size + unit] += error / count * units[unit];
                const double back = error / count * x[size + unit] * (1 - units[unit] * units[unit]);
                for (std::size_t i = 0; i < features; ++i) {
                  result.gradient[i * hidden + unit] += back * inputs[sample * features + i];
                }
              }
            }
            for (std::size_t i = 0; i < x.size(); ++i) {
              result.value += 0.5 * decay * x[i] * x[i];
              result.gradient[i] += decay * x[i];
            }
            return result;
          },
          start};
}

LbfgsOptions Options(std::uint32_t history = 10) {
  return {.history = history, .gradient_tolerance = 1e-5, .max_evaluations = 10000};
}

// As scipy_reference.py prints it, of SciPy 1.17.1.
struct Reference {
  std::string name;
  double minimum = 0;
  int iterations = 0;
  int evaluations = 0;
};

TEST(LbfgsTest, FindsWhatSciPyFindsInAsManyIterations) {
  const std::vector<std::pair<Reference, std::pair<Problem, std::uint32_t>>> cases = {
      {{"Quadratic100", 1.8378876822106e-11, 239, 249}, {Quadratic(100, 1000), 10}},
      {{"Quadratic1000", 9.69681571900136e-11, 80, 87}, {Quadratic(1000, 100), 10}},
      {{"Logistic50", 0.183020186149947, 14, 15}, {Logistic(500, 50, 1e-3), 10}},
      {{"Logistic200", 0.0433128008161636, 28, 30}, {Logistic(1000, 200, 1e-4), 5}},
      {{"Rosenbrock20", 6.76688093497074e-14, 129, 159}, {Rosenbrock(20), 10}},
      {{"Network", 0.0298782357360714, 168, 182}, {Network(200, 8, 6, 1e-3), 10}},
  };
  for (const auto& [reference, made] : cases) {
    SCOPED_TRACE(reference.name);
    const Lbfgs search = Minimise(made.first, Options(made.second)).search;
    EXPECT_EQ(search.outcome(), Lbfgs::Outcome::kConverged) << search.Describe();
    EXPECT_LE(search.gradient_norm(), 1e-5);
    EXPECT_NEAR(search.value(), reference.minimum, 1e-6);
    EXPECT_LE(search.iterations(), 1.1 * reference.iterations) << search.evaluations() << " evaluations";
    EXPECT_LE(search.evaluations(), 1.1 * reference.evaluations) << search.iterations() << " iterations";
  }
}

// Whoever takes the search up from its state goes on as if nothing had happened, at any command.
TEST(LbfgsTest, GoesOnFromItsState) {
  const Problem problem = Rosenbrock(6);
  const Lbfgs expected = Minimise(problem, Options(3)).search;
  Lbfgs search(Options(3));
  PlainVectors vectors(problem);
  while (!search.done()) {
    if (search.number() != 0) {
      const v1::VectorCommand command = search.command();
      const absl::StatusOr<Lbfgs> again = Lbfgs::FromState(Options(3), command.search());
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_EQ(again->command().SerializeAsString(), command.SerializeAsString());
      search = *again;
    }
    if (search.evaluates()) {
      vectors.Evaluate();
      search.OnEvaluated();
    } else {
      search.OnSums(vectors.CarryOut(search.command()));
    }
    if (search.evaluates()) vectors.CarryOut(search.command());
  }
  EXPECT_EQ(search.state(), expected.state());
}

TEST(LbfgsTest, RefusesAStateOfAnotherSearch) {
  Lbfgs search(Options(3));
  std::vector<double> state = search.state();
  EXPECT_TRUE(Lbfgs::FromState(Options(3), state).ok());
  EXPECT_THAT(std::string(Lbfgs::FromState(Options(4), state).status().message()), HasSubstr("history of 4"));
  for (double wrong : {-1.0, 0.5, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    state[1] = wrong;
    EXPECT_EQ(Lbfgs::FromState(Options(3), state).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(LbfgsTest, StepsBackFromWhereTheFunctionIsNotFinite) {
  // -log(x) + x, of which there is nothing at 0 and below; the minimum is at 1.
  const Problem problem{[](const Values& x) {
                          if (x[0] <= 0) {
                            const double nan = std::numeric_limits<double>::quiet_NaN();
                            return Evaluation{std::numeric_limits<double>::infinity(), {nan}};
                          }
                          return Evaluation{x[0] - std::log(x[0]), {1 - 1 / x[0]}};
                        },
                        {1.9}};
  const Result result = Minimise(problem, Options());
  EXPECT_EQ(result.search.outcome(), Lbfgs::Outcome::kConverged) << result.search.Describe();
  EXPECT_NEAR(result.value[0], 1, 1e-4);
}

TEST(LbfgsTest, EndsWithTheBestPointWhateverTheReason) {
  const Problem problem = Quadratic(100, 1000);
  LbfgsOptions options = Options();
  double before = problem.evaluate(problem.start).value;
  for (std::uint32_t evaluations = 1; evaluations < 40; ++evaluations) {
    options.max_evaluations = evaluations;
    const Result result = Minimise(problem, options);
    EXPECT_EQ(result.search.outcome(), Lbfgs::Outcome::kEvaluations);
    EXPECT_EQ(result.search.evaluations(), evaluations);
    const double value = problem.evaluate(result.value).value;
    EXPECT_DOUBLE_EQ(value, result.search.value());
    EXPECT_LE(value, before);
    before = value;
  }
  options = Options();
  options.max_iterations = 7;
  const Result result = Minimise(problem, options);
  EXPECT_EQ(result.search.outcome(), Lbfgs::Outcome::kIterations);
  EXPECT_EQ(result.search.iterations(), 7u);
  EXPECT_THAT(result.search.Describe(), StartsWith("not converged after 7 iterations"));
}

TEST(LbfgsTest, ConvergesAtOnceWhereTheGradientIsSmall) {
  Problem problem = Quadratic(10, 10);
  for (std::size_t i = 0; i < problem.start.size(); ++i) problem.start[i] = Number(i);
  const Result result = Minimise(problem, Options());
  EXPECT_EQ(result.search.outcome(), Lbfgs::Outcome::kConverged);
  EXPECT_EQ(result.search.evaluations(), 1u);
  EXPECT_EQ(result.value, problem.start);
}

TEST(LbfgsTest, SaysWhyThereIsNothingToFind) {
  // Its gradient points the wrong way.
  const Problem wrong{[](const Values& x) { return Evaluation{x[0], {-1}}; }, {0}};
  const Result none = Minimise(wrong, Options());
  EXPECT_EQ(none.search.outcome(), Lbfgs::Outcome::kNoProgress);
  EXPECT_EQ(none.value, Values{0});
  EXPECT_THAT(none.search.Describe(), HasSubstr("no better point is found along the gradient"));
  const Problem infinite{[](const Values&) { return Evaluation{INFINITY, {0}}; }, {0}};
  const Result first = Minimise(infinite, Options());
  EXPECT_EQ(first.search.outcome(), Lbfgs::Outcome::kNotFinite);
  EXPECT_THAT(first.search.Describe(), HasSubstr("not finite with the initial values"));
}

// The mean of float32 losses is only so precise. Slopes lead on where differences of the function do not.
TEST(LbfgsTest, ConvergesWhereTheFunctionIsNoisy) {
  const Problem exact = Logistic(500, 50, 1e-3);
  std::uint64_t evaluations = 0;
  const Problem noisy{[&](const Values& x) {
                        Evaluation evaluation = exact.evaluate(x);
                        evaluation.value *= 1 + 1e-7 * Number(++evaluations);
                        return evaluation;
                      },
                      exact.start};
  const Result result = Minimise(noisy, Options());
  EXPECT_EQ(result.search.outcome(), Lbfgs::Outcome::kConverged) << result.search.Describe();
}

}  // namespace
}  // namespace downpour::core::sandblaster
