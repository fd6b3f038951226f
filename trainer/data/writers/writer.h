#ifndef DOWNPOUR_TRAINER_DATA_WRITERS_WRITER_H_
#define DOWNPOUR_TRAINER_DATA_WRITERS_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/files/new_file.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transforms/numbers.h"

// Writes samples as files of a format that the readers read (formats/), so that every reader has realistic input. One
// format a file.
namespace downpour::data {

// Of one set of files. Belongs to one thread.
class SampleWriter {
 public:
  virtual ~SampleWriter() = default;
  virtual absl::Status Add(const Sample& sample) = 0;
  // The files are whole and under their names; before, a file is there under no name at most.
  virtual absl::Status Finish() = 0;
};

// What is known before the first sample.
struct WriterOptions {
  std::vector<Column> columns;
  std::int64_t samples = 0;
  std::string directory;  // that exists; file names are those of the format
  bool train = true;      // or the test set, where the format has names for both
};

using SampleWriterFactory = std::function<absl::StatusOr<std::unique_ptr<SampleWriter>>(const WriterOptions& options)>;

// "CSV", "Text", "NPY", "SafeTensors", "IDX", "CIFAR10", "ImageFolder", "TFRecord", "WebDataset", or "Parquet", whose
// writer (parquet_writer.h) comes from programs that have Apache Arrow. kInvalidArgument: the format cannot hold such
// columns: what it holds, and what it was given. kUnimplemented: another format, or Parquet without its writer.
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeSampleWriter(const std::string& format, const WriterOptions& options,
                                                               const SampleWriterFactory& parquet = {});

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeCsvWriter(const WriterOptions& options);   // data.csv
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeTextWriter(const WriterOptions& options);  // data.txt, LabelledLines
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeNpyWriter(const WriterOptions& options);   // COLUMN.npy
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeSafetensorsWriter(const WriterOptions& options);  // data.safetensors
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeIdxWriter(const WriterOptions& options);
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeCifarWriter(const WriterOptions& options);
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeImageFolderWriter(const WriterOptions& options);  // CLASS/NUMBER.png
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeTfRecordWriter(const WriterOptions& options);     // data.tfrecord
absl::StatusOr<std::unique_ptr<SampleWriter>> MakeWebDatasetWriter(const WriterOptions& options);   // data.tar

// A file that is written from its beginning to its end.
class AppendedFile {
 public:
  static absl::StatusOr<std::unique_ptr<AppendedFile>> Create(const std::string& path);
  absl::Status Append(const void* bytes, std::size_t count);
  absl::Status Append(const std::string& bytes) { return Append(bytes.data(), bytes.size()); }
  absl::Status Commit() { return file_->Commit(); }

 private:
  explicit AppendedFile(std::unique_ptr<NewFile> file) : file_(std::move(file)) {}
  const std::unique_ptr<NewFile> file_;
  std::uint64_t bytes_ = 0;
};

// The column of this name; nothing if there is none.
int FindColumn(const std::vector<Column>& columns, const std::string& name);
// That of the label, one integer with classes, and of the image, u8 [1 or 3, height, width]; -1: there is none.
int FindLabel(const std::vector<Column>& columns);
int FindImage(const std::vector<Column>& columns);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_WRITERS_WRITER_H_
