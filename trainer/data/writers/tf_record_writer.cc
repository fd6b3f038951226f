#include <utility>

#include "tensorflow_example.pb.h"
#include "trainer/data/image.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/data/writers/writer.h"
#include "trainer/wire/tf_record.h"

namespace downpour::data {
namespace {

// Each record is a tf.train.Example.
class TfRecordWriter final : public SampleWriter {
 public:
  TfRecordWriter(std::vector<Column> columns, int image, std::unique_ptr<AppendedFile> file)
      : columns_(std::move(columns)), image_(image), file_(std::move(file)) {}

  absl::Status Add(const Sample& sample) override {
    tensorflow::Example example;
    auto& features = *example.mutable_features()->mutable_feature();
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const Column& column = columns_[i];
      tensorflow::Feature& feature = features[column.name];
      const std::vector<std::byte>& bytes = sample[i].bytes;
      if (static_cast<int>(i) == image_) {
        const absl::StatusOr<std::vector<std::uint8_t>> png = EncodePng(sample[i]);
        if (!png.ok()) return png.status();
        feature.mutable_bytes_list()->add_value(png->data(), png->size());
      } else if (column.text) {
        feature.mutable_bytes_list()->add_value(bytes.data(), bytes.size());
      } else {
        WithElementType(column.type, [&](auto element) {
          using Element = decltype(element);
          const auto* const elements = reinterpret_cast<const Element*>(bytes.data());
          for (std::size_t j = 0; j < bytes.size() / sizeof(Element); ++j) {
            if constexpr (std::is_same_v<Element, float>) {
              feature.mutable_float_list()->add_value(elements[j]);
            } else {
              feature.mutable_int64_list()->add_value(static_cast<std::int64_t>(elements[j]));
            }
          }
          return 0;
        });
      }
    }
    std::string record;
    wire::AppendTfRecord(example.SerializeAsString(), &record);
    return file_->Append(record);
  }

  absl::Status Finish() override { return file_->Commit(); }

 private:
  const std::vector<Column> columns_;
  const int image_;
  const std::unique_ptr<AppendedFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeTfRecordWriter(const WriterOptions& options) {
  absl::StatusOr<std::unique_ptr<AppendedFile>> file = AppendedFile::Create(options.directory + "/data.tfrecord");
  if (!file.ok()) return file.status();
  const int image = FindImage(options.columns);
  return std::make_unique<TfRecordWriter>(options.columns, image, *std::move(file));
}

}  // namespace downpour::data
