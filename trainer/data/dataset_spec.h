#ifndef DOWNPOUR_TRAINER_DATA_DATASET_SPEC_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_SPEC_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Which data set, and what is made of it: spec.dataset of a manifest, as the trainer is told it.
namespace downpour::data {

// Generated data (synthetic.h). 0 or empty: what is usual for the kind.
struct SyntheticSpec {
  std::string kind = {};  // "Images", "Text", "Speech", "Radar"
  std::uint64_t samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> shape = {};  // of an input, but for Text
  std::uint64_t classes = 0;             // but for Radar
  std::uint64_t vocabulary = 0;          // of Text, as are the lengths, in words
  std::uint64_t min_length = 0;
  std::uint64_t max_length = 0;
};

struct FieldSpec {
  std::string column = {};
  std::string name = {};  // empty: that of the column
  bool target = false;
  std::vector<std::string> columns = {};  // instead of `column`: single numbers in a row
  std::int64_t classes = 0;               // of one integer, which is below this; 0: as the data say
};

// One of transforms/transform.h, by its name; each has some of the numbers.
struct TransformSpec {
  std::string type = {};  // "Resize", "CenterCrop", "RandomCrop", "RandomFlip", "ColorJitter", "Normalize", "Tokenize",
                          // "OneHot", "Cast"
  std::string field = {};  // empty: every field that it is for
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t padding = 0;
  double probability = 0.5;
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
  std::int64_t words = 0;  // of the vocabulary, at most
  std::int64_t max_length = 0;
  std::int64_t classes = 0;
  std::string element_type = {};  // "u8", "i32", "i64", "fp32"
};

// A column of a CSV file, or a feature of a TFRecord, that is not left to be found out.
struct ColumnSpec {
  std::string name = {};
  std::string type =
      {};  // CSV: "u8", "i32", "i64", "fp32", "text", "categorical"; TFRecord: "i64", "fp32", "bytes", "text", "image"
  std::vector<std::int64_t> shape = {};
  std::vector<std::string> class_names = {};
};

struct DatasetSpec {
  std::string format = {};     // see open_dataset.h
  std::string directory = {};  // or file, or URI: of the training set, or of both
  std::string test_path = {};  // of the test set, where the format does not say itself which samples these are
  SyntheticSpec synthetic = {};

  double validation = 0;  // without a test set: the share of samples that are held out for one
  std::uint64_t split_seed = 1;
  std::vector<FieldSpec> fields = {};  // empty: UsualFields
  std::vector<TransformSpec> transforms = {};

  std::vector<ColumnSpec> columns = {};  // CSV and TFRecord; Parquet and SafeTensors: which are read, by their names
  bool header = true;                    // of CSV
  std::string delimiter = ",";           // of CSV
  std::string layout = {};               // of Text: "Lines", "LabelledLines", "Folders"
  std::vector<std::string> class_names = {};  // of Text and ImageFolder; empty: those that are there
  std::int64_t channels = 3;                  // of images

  bool skip_bad_samples = false;
  std::uint64_t most_bad_samples = 0;  // of `skip_bad_samples`; and that a vocabulary leaves out

  int threads = 0;  // that read and transform beside the one that waits for a batch
  // Of indexes and vocabularies, for any number of processes; empty: none are kept.
  std::string cache_directory = {};
  // Of blocks of remote files, for this process alone; empty: that for all.
  std::string blocks_directory = {};
  std::uint64_t cache_bytes = std::uint64_t{8} << 30;  // of these blocks
  // Hears, for people, when a store of remote files is away and when it answers again; of any thread. Null: nobody
  // does.
  std::function<void(const std::string&)> tell = nullptr;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_SPEC_H_
