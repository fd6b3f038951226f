#include "trainer/worker/dataset_spec.h"

#include <algorithm>
#include <thread>

namespace downpour::worker {

data::DatasetSpec MakeDatasetSpec(const v1::DatasetConfig& config) {
  const v1::SyntheticConfig& synthetic = config.synthetic();
  data::DatasetSpec spec;
  spec.format = config.format();
  spec.directory = config.path();
  spec.test_path = config.test_path();
  spec.validation = config.validation();
  spec.split_seed = config.split_seed();
  for (const v1::DatasetFieldConfig& field : config.fields()) {
    spec.fields.push_back({field.column(),
                           field.name(),
                           field.target(),
                           {field.columns().begin(), field.columns().end()},
                           field.classes()});
  }
  for (const v1::TransformConfig& transform : config.transforms()) {
    spec.transforms.push_back({.type = transform.type(),
                               .field = transform.field(),
                               .height = transform.height(),
                               .width = transform.width(),
                               .padding = transform.padding(),
                               .probability = transform.probability(),
                               .brightness = transform.brightness(),
                               .contrast = transform.contrast(),
                               .saturation = transform.saturation(),
                               .mean = {transform.mean().begin(), transform.mean().end()},
                               .deviation = {transform.deviation().begin(), transform.deviation().end()},
                               .words = transform.words(),
                               .max_length = transform.max_length(),
                               .classes = transform.classes(),
                               .element_type = transform.element_type()});
  }
  for (const v1::ColumnConfig& column : config.columns()) {
    spec.columns.push_back({column.name(),
                            column.type(),
                            {column.shape().begin(), column.shape().end()},

                            {column.class_names().begin(), column.class_names().end()}});
  }
  spec.class_names.assign(config.class_names().begin(), config.class_names().end());
  spec.header = !config.no_header();
  if (!config.delimiter().empty()) spec.delimiter = config.delimiter();
  spec.layout = config.text_layout();
  if (config.channels() != 0) spec.channels = config.channels();
  spec.skip_bad_samples = config.skip_bad_samples();
  spec.most_bad_samples = config.most_bad_samples();
  // One less: whoever waits for a batch reads as well.
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  spec.threads = static_cast<int>(config.has_threads() ? config.threads() : cores - 1);
  spec.cache_directory = config.cache_directory();
  if (config.cache_bytes() != 0) spec.cache_bytes = config.cache_bytes();
  spec.synthetic.kind = synthetic.kind();
  spec.synthetic.samples = synthetic.samples();
  spec.synthetic.test_samples = synthetic.test_samples();
  spec.synthetic.seed = synthetic.seed();
  spec.synthetic.shape.assign(synthetic.shape().begin(), synthetic.shape().end());
  spec.synthetic.classes = synthetic.classes();
  spec.synthetic.vocabulary = synthetic.vocabulary();
  spec.synthetic.min_length = synthetic.min_length();
  spec.synthetic.max_length = synthetic.max_length();
  return spec;
}

}  // namespace downpour::worker
