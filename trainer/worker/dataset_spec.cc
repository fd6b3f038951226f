#include "trainer/worker/dataset_spec.h"

namespace downpour::worker {

data::DatasetSpec MakeDatasetSpec(const v1::DatasetConfig& config) {
  const v1::SyntheticConfig& synthetic = config.synthetic();
  data::DatasetSpec spec;
  spec.format = config.format();
  spec.directory = config.path();
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
