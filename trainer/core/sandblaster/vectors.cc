#include "trainer/core/sandblaster/vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/sandblaster/lbfgs.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core::sandblaster {
namespace {

constexpr std::size_t kBlock = 512;  // elements that are gone over together, so that they stay in the cache
constexpr std::size_t kLanes = 8;

DOWNPOUR_KERNEL void AddGradient(const float* gradient, double weight, std::size_t count, float* high, float* low) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < count; ++i) {
    const double sum = (double{high[i]} + double{low[i]}) + weight * double{gradient[i]};
    high[i] = static_cast<float>(sum);
    low[i] = static_cast<float>(sum - double{high[i]});
  }
}

DOWNPOUR_KERNEL void AddScaled(const double* vector, double factor, std::size_t count, double* sum) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < count; ++i) sum[i] += factor * vector[i];
}

// Of kBlock elements. In lanes, so that the order of the additions is the same with vectors of any width.
DOWNPOUR_KERNEL double Product(const double* a, const double* b) {
  std::array<double, kLanes> lanes{};
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

Vectors::Vectors(std::uint32_t history, std::uint32_t elements)
    : type_(absl::StrCat("LBFGS-", history)), elements_(elements) {
  const auto add = [this](std::string name) {
    vectors_.push_back({std::move(name), std::make_shared<std::vector<float>>(elements_)});
  };
  for (const char* name : {"gradient_low", "gradient", "base", "base_gradient", "direction"}) add(name);
  for (std::uint32_t pair = 0; pair < history; ++pair) {
    add(absl::StrCat("step", pair));
    add(absl::StrCat("change", pair));
  }
}

float* Vectors::Writable(std::uint32_t vector) {
  std::shared_ptr<std::vector<float>>& values = vectors_[vector].values;
  if (!SoleOwner(values)) values = std::make_shared<std::vector<float>>(*values);
  return values->data();
}

void Vectors::Step(absl::Span<const float> /*value*/, const EncodedGradient& gradient, const StepContext& context,
                   absl::Span<float> /*updated*/) {
  float* const high = Writable(kGradient);
  float* const low = Writable(kValue);
  const double weight = context.factor * context.samples;
  gradient.ForEachFloats(elements_, [&](std::size_t first, absl::Span<const float> run) {
    AddGradient(run.data(), weight, run.size(), high + first, low + first);
  });
  loss_ += context.loss * context.samples;
}

void Vectors::Skip() { loss_ = std::numeric_limits<double>::infinity(); }

OptimizerState Vectors::Export() const {
  OptimizerState state{type_, {}, {{"loss", loss_}}};
  for (const Vector& vector : vectors_) state.vectors.push_back({vector.name, vector.values});
  for (std::size_t i = 0; i < search_.size(); ++i) state.scalars.push_back({absl::StrCat("search", i), search_[i]});
  return state;
}

absl::Status Vectors::Import(const OptimizerState& state) {
  const auto refuse = [](const std::string& why) { return absl::InvalidArgumentError(why); };
  if (state.type != type_) return refuse(absl::StrCat("the state of ", state.type, ", expected that of ", type_));
  const std::size_t remembered = Lbfgs::StateSize(static_cast<std::uint32_t>((vectors_.size() - 5) / 2));
  const std::size_t scalars = state.scalars.size();
  if (state.vectors.size() != vectors_.size() || (scalars != 1 && scalars != 1 + remembered)) {
    return refuse(absl::StrCat(state.vectors.size(), " vectors and ", scalars, " scalars, ", type_, " has ",
                               vectors_.size(), " and 1 or ", 1 + remembered));
  }
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    const StateVector& given = state.vectors[i];
    const std::size_t size = given.values == nullptr ? 0 : given.values->size();
    if (given.name != vectors_[i].name || size != elements_) {
      return refuse(absl::StrCat("a vector ", given.name, " of ", size, ", ", type_, " has ", vectors_[i].name, " of ",
                                 elements_));
    }
  }
  const double number = scalars == 1 ? 0 : state.scalars[1].value;
  if (!(number >= 0 && number < 1e15 && number == std::floor(number))) {
    return refuse(absl::StrCat("a command of number ", number));
  }
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    // The state may be shared: SoleOwner keeps it from being written.
    vectors_[i].values = std::const_pointer_cast<std::vector<float>>(state.vectors[i].values);
  }
  loss_ = state.scalars[0].value;
  number_ = static_cast<std::uint64_t>(number);
  search_.clear();
  for (std::size_t i = 1; i < scalars; ++i) search_.push_back(state.scalars[i].value);
  sums_.clear();
  return absl::OkStatus();
}

bool Vectors::SetsValue(const v1::VectorCommand& command) {
  return std::any_of(command.sums().begin(), command.sums().end(),
                     [](const v1::VectorSum& sum) { return sum.target() == kValue; });
}

absl::Status Vectors::Check(const v1::VectorCommand& command) const {
  const auto known = [this](std::uint32_t vector) { return vector < vectors_.size(); };
  bool fits = std::all_of(command.products().begin(), command.products().end(), known);
  for (const v1::VectorSum& sum : command.sums()) {
    fits = fits && known(sum.target());
    for (const v1::VectorTerm& term : sum.terms()) fits = fits && known(term.vector());
  }
  const std::size_t remembered = Lbfgs::StateSize(static_cast<std::uint32_t>((vectors_.size() - 5) / 2));
  fits = fits && static_cast<std::size_t>(command.search_size()) == remembered &&
         command.search(0) == static_cast<double>(command.number());
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("command ", command.number(), " is not for ", type_));
}

void Vectors::CarryOut(const v1::VectorCommand& command, absl::Span<float> value) {
  for (const v1::VectorSum& sum : command.sums()) Sum(sum, value);
  sums_.clear();
  if (command.products_size() > 0) FormProducts(command, value);
  search_.assign(command.search().begin(), command.search().end());
  number_ = command.number();
}

void Vectors::Load(std::uint32_t vector, const float* value, std::size_t first, std::size_t count, double* to) const {
  const float* const from = (vector == kValue ? value : vectors_[vector].values->data()) + first;
  std::copy_n(from, count, to);
  if (vector != kGradient) return;
  const float* const low = vectors_[kValue].values->data() + first;
  for (std::size_t i = 0; i < count; ++i) to[i] += double{low[i]};
}

void Vectors::Sum(const v1::VectorSum& sum, absl::Span<float> value) {
  const std::uint32_t target = sum.target();
  if (sum.terms().empty() && target == kGradient) loss_ = 0;
  float* const high = target == kValue ? value.data() : Writable(target);
  float* const low = target == kGradient ? Writable(kValue) : nullptr;
  std::array<double, kBlock> total;
  std::array<double, kBlock> term_values;
  for (std::size_t first = 0; first < elements_; first += kBlock) {
    const std::size_t count = std::min(kBlock, elements_ - first);
    total.fill(0);
    for (const v1::VectorTerm& term : sum.terms()) {
      Load(term.vector(), value.data(), first, count, term_values.data());
      AddScaled(term_values.data(), term.factor(), count, total.data());
    }
    for (std::size_t i = 0; i < count; ++i) {
      high[first + i] = static_cast<float>(total[i]);
      if (low != nullptr) low[first + i] = static_cast<float>(total[i] - double{high[first + i]});
    }
  }
}

void Vectors::FormProducts(const v1::VectorCommand& command, absl::Span<const float> value) {
  const auto count_of_vectors = static_cast<std::size_t>(command.products_size());
  std::vector<std::array<double, kBlock>> blocks(count_of_vectors);
  std::vector<double> products(count_of_vectors * (count_of_vectors + 1) / 2);
  float greatest = 0;
  for (float element : *vectors_[kGradient].values) greatest = std::max(greatest, std::abs(element));
  for (std::size_t first = 0; first < elements_; first += kBlock) {
    const std::size_t count = std::min(kBlock, elements_ - first);
    std::size_t next = 0;
    for (std::size_t i = 0; i < count_of_vectors; ++i) {
      if (count < kBlock) blocks[i].fill(0);
      Load(command.products(static_cast<int>(i)), value.data(), first, count, blocks[i].data());
    }
    for (std::size_t i = 0; i < count_of_vectors; ++i) {
      for (std::size_t j = i; j < count_of_vectors; ++j)
        products[next++] += Product(blocks[i].data(), blocks[j].data());
    }
  }
  sums_ = {loss_, greatest};
  sums_.insert(sums_.end(), products.begin(), products.end());
}

}  // namespace downpour::core::sandblaster
