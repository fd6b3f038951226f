#include "trainer/data/split.h"

#include <limits>
#include <utility>

#include "trainer/data/random.h"

namespace downpour::data {
namespace {

constexpr std::uint64_t kPurpose = 0x73706c6974;  // "split": not the numbers of anything else

template <typename Index>
class Part final : public SampleSource {
 public:
  Part(std::shared_ptr<const SampleSource> source, std::vector<Index> indices)
      : source_(std::move(source)), indices_(std::move(indices)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  const std::vector<Column>& columns() const override { return source_->columns(); }
  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    return source_->Read(static_cast<std::int64_t>(indices_[static_cast<std::size_t>(index)]));
  }

 private:
  const std::shared_ptr<const SampleSource> source_;
  const std::vector<Index> indices_;
};

template <typename Index>
std::unique_ptr<SampleSource> PartOf(std::shared_ptr<const SampleSource> source, double fraction, std::uint64_t seed,
                                     bool held_out) {
  std::vector<Index> indices;
  for (std::int64_t i = 0; i < source->size(); ++i) {
    if (IsHeldOut(fraction, seed, i) == held_out) indices.push_back(static_cast<Index>(i));
  }
  indices.shrink_to_fit();
  return std::make_unique<Part<Index>>(std::move(source), std::move(indices));
}

}  // namespace

bool IsHeldOut(double fraction, std::uint64_t seed, std::int64_t index) {
  return Random(seed, kPurpose, static_cast<std::uint64_t>(index)).Fraction() < fraction;
}

std::unique_ptr<SampleSource> MakePart(std::shared_ptr<const SampleSource> source, double fraction, std::uint64_t seed,
                                       bool held_out) {
  const bool small = source->size() <= std::numeric_limits<std::uint32_t>::max();
  return small ? PartOf<std::uint32_t>(std::move(source), fraction, seed, held_out)
               : PartOf<std::int64_t>(std::move(source), fraction, seed, held_out);
}

}  // namespace downpour::data
