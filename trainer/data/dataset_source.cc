#include "trainer/data/dataset_source.h"

#include <optional>
#include <utility>

namespace downpour::data {
namespace {

class DatasetSource final : public SampleSource {
 public:
  explicit DatasetSource(std::unique_ptr<Dataset> dataset) : dataset_(std::move(dataset)) {
    for (const std::vector<Field>* fields : {&dataset_->fields().inputs, &dataset_->fields().targets}) {
      for (const Field& field : *fields)
        columns_.push_back({field.name, field.type, field.shape, false, field.classes});
    }
  }

  std::int64_t size() const override { return dataset_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    absl::StatusOr<Batch> batch = dataset_->Read({index}, std::nullopt);
    if (!batch.ok()) return batch.status();
    Sample sample;
    for (std::vector<Array>* arrays : {&batch->inputs, &batch->targets}) {
      for (Array& array : *arrays) {
        sample.push_back({{array.shape.begin() + 1, array.shape.end()}, std::move(array.bytes)});
      }
    }
    return sample;
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  std::vector<Column> columns_;
};

}  // namespace

std::unique_ptr<SampleSource> SourceOf(std::unique_ptr<Dataset> dataset) {
  return std::make_unique<DatasetSource>(std::move(dataset));
}

}  // namespace downpour::data
