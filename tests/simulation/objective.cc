#include "tests/simulation/objective.h"

#include <cmath>
#include <string>

#include "tests/simulation/process.h"
#include "trainer/core/layout.h"
#include "trainer/core/sandblaster/search.h"
#include "trainer/core/sandblaster/vectors.h"

namespace downpour::simulation {
namespace {

double Rounded(double value) { return std::round(std::ldexp(value, 16)) / 65536; }

double Scale(std::uint32_t slice, std::size_t i) { return 1 + static_cast<double>((slice * 3 + i * 7) % 6); }
double Centre(std::uint32_t slice, std::size_t i) { return static_cast<double>((slice * 5 + i * 11) % 13) / 8 - 0.75; }
// What a sample adds to the slope.
double Pull(std::uint32_t slice, std::size_t i, std::int64_t sample) {
  return static_cast<double>((static_cast<std::uint64_t>(sample) * 17 + slice * 3 + i * 5) % 9) / 8 - 0.5;
}

double MeanPull(const std::vector<std::int64_t>& samples, std::uint32_t slice, std::size_t i) {
  double sum = 0;
  for (std::int64_t sample : samples) sum += Pull(slice, i, sample);
  return sum / static_cast<double>(samples.size());
}

}  // namespace

double Objective::Loss(const core::DataPlan& plan, const core::UpdateId& update, const Values& values) {
  const std::vector<std::int64_t> samples = plan.SampleIndices(update);
  double loss = 0;
  for (const auto& [slice, value] : values) {
    for (std::size_t i = kSamples; i < value.size(); ++i) {
      const double distance = value[i] - Centre(slice, i);
      loss += 0.5 * Scale(slice, i) * distance * distance + MeanPull(samples, slice, i) * value[i];
    }
  }
  return Rounded(loss);
}

std::vector<float> Objective::Gradient(const core::DataPlan& plan, const core::UpdateId& update, std::uint32_t slice,
                                       const std::vector<float>& value) {
  const std::vector<std::int64_t> samples = plan.SampleIndices(update);
  std::vector<float> gradient(value.size());
  for (std::size_t i = kSamples; i < value.size(); ++i) {
    const double distance = value[i] - Centre(slice, i);
    gradient[i] = static_cast<float>(Rounded(Scale(slice, i) * distance + MeanPull(samples, slice, i)));
  }
  return gradient;
}

Objective::Minimum Objective::Search(const v1::View& view, const v1::LbfgsConfig& config) {
  const core::DataPlan plan = *core::DataPlan::Create(view.data());
  const std::vector<core::Slice> slices = *core::CutTensors(view);
  core::sandblaster::Search search(view, config);
  Minimum minimum;
  std::map<std::uint32_t, core::sandblaster::Vectors> vectors;
  for (std::uint32_t number = 0; number < slices.size(); ++number) {
    if (view.tensors(static_cast<int>(slices[number].tensor)).kind() == v1::BUFFER) continue;
    vectors.emplace(number, core::sandblaster::Vectors(view.optimizer().history(), slices[number].elements));
    minimum.values[number].resize(slices[number].elements);
  }
  std::uint32_t epoch = 0;
  while (!search.done()) {
    if (search.end_of_grants() > epoch) {
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
        for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
          const core::UpdateId update{epoch, shard, group};
          core::StepContext context;
          context.loss = Loss(plan, update, minimum.values);
          context.samples = plan.samples_in_update(update);
          for (auto& [number, of_slice] : vectors) {
            const std::vector<float> gradient = Gradient(plan, update, number, minimum.values[number]);
            of_slice.Step({}, core::Payload::OfFloats(gradient, nullptr), context, {});
          }
        }
      }
      search.Advance(++epoch);
    }
    v1::DirectRequest directive;
    search.Ask(&directive);
    v1::VectorReply reply;
    reply.set_number(directive.vectors().number());
    for (auto& [number, of_slice] : vectors) {
      if (directive.vectors().number() > of_slice.number()) {
        of_slice.CarryOut(directive.vectors(), absl::MakeSpan(minimum.values[number]));
      }
      v1::SliceSums* sums = reply.add_slices();
      sums->set_slice(number);
      sums->set_number(of_slice.number());
      sums->mutable_sums()->Add(of_slice.sums().begin(), of_slice.sums().end());
    }
    search.Answer(reply);
  }
  minimum.evaluations = search.lbfgs().evaluations();
  minimum.iterations = search.lbfgs().iterations();
  minimum.outcome = search.lbfgs().Describe();
  return minimum;
}

}  // namespace downpour::simulation
