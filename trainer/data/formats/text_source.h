#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

enum class TextLayout {
  kLines,          // a sample a line
  kLabelledLines,  // likewise, LABEL<TAB>TEXT
  kFolders,        // a sample a file, in a folder named after its class
};

struct TextOptions {
  TextLayout layout = TextLayout::kLines;
  // In the order of their numbers; none: those that are there, sorted: as numbers if all are integers, else by their
  // bytes. Not for kLines.
  std::vector<std::string> class_names;
  std::string suffix = ".txt";  // of the files of a directory that are read
  std::string cache_directory;  // of index files (index_file.h), not for kFolders; empty: an index is built each time
};

// Texts in UTF-8: column "text", and with labels "label": i64 with the names of its classes.
// Lines are those of a file, or of all files of a directory one after another; they end with LF or CRLF, empty ones are
// samples too, and a byte order mark is left out. Opening goes through them once (index_file.h): a line without a tab
// where a label is expected, and one above 64 MiB, are errors of opening.
// Folders are those in `path`; files may lie deeper in them; those right in `path`, and folders without a file whose
// name ends in the suffix, are left alone. The list of the files is held in memory.
// NUL, what is not UTF-8, a file above 64 MiB and a label that is none of options.class_names are errors of Read.
// Must not outlive `files`.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenText(const Files& files, const std::string& path,
                                                       const TextOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_SOURCE_H_
