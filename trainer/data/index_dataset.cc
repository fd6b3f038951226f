#include "trainer/data/index_dataset.h"

#include <utility>

namespace downpour::data {
namespace {

class IndexDataset final : public Dataset {
 public:
  IndexDataset(std::int64_t size, SampleFields fields) : size_(size), fields_(std::move(fields)) {}

  std::int64_t size() const override { return size_; }
  const SampleFields& fields() const override { return fields_; }
  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices, std::optional<std::uint64_t> seed) const override {
    Batch batch;
    batch.indices.assign(indices.begin(), indices.end());
    batch.seed = seed;
    return batch;
  }

 private:
  const std::int64_t size_;
  const SampleFields fields_;
};

}  // namespace

std::unique_ptr<Dataset> MakeIndexDataset(std::int64_t size, SampleFields fields) {
  return std::make_unique<IndexDataset>(size, std::move(fields));
}

}  // namespace downpour::data
