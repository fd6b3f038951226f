#ifndef DOWNPOUR_TRAINER_DATA_VOCABULARY_H_
#define DOWNPOUR_TRAINER_DATA_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

// The words of a text: letters and digits of ASCII and all that is beyond ASCII, upper case made lower; whatever else
// there is keeps them apart.
std::vector<std::string> SplitWords(absl::string_view text);

// Words and their numbers: 0 pads, 1 stands for every other word, and the words have 2, 3, ... Thread-safe.
class Vocabulary {
 public:
  static constexpr std::int32_t kPadding = 0;
  static constexpr std::int32_t kUnknown = 1;
  static constexpr std::int32_t kFirstWord = 2;
  static constexpr std::size_t kMostWords = std::size_t{1} << 24;

  // The words that are the most frequent in the texts `column` of the samples `indices`, at most `most` (at least 1 and
  // no more than kMostWords), by falling frequency, then by their bytes: the same for the same texts, in whatever
  // order. Holds all words that there are in memory meanwhile. Up to `most_broken` samples that are broken are left
  // out. kInvalidArgument: no such column, it is no text, or `most`; else the errors of the source.
  static absl::StatusOr<Vocabulary> Build(const SampleSource& source, const std::string& column,
                                          absl::Span<const std::int64_t> indices, std::size_t most,
                                          std::uint64_t most_broken = 0);

  // In the format of docs/formats.md. kDataLoss: what is wrong with it, without a file name.
  std::string Encode() const;
  static absl::StatusOr<Vocabulary> Decode(absl::Span<const std::uint8_t> bytes);

  const std::vector<std::string>& words() const { return words_; }
  // Ids are in [0, size()).
  std::int64_t size() const { return kFirstWord + static_cast<std::int64_t>(words_.size()); }
  std::int32_t IdOf(absl::string_view word) const;
  // Of each word of the text.
  std::vector<std::int32_t> Ids(absl::string_view text) const;

  friend bool operator==(const Vocabulary& a, const Vocabulary& b) { return a.words_ == b.words_; }

 private:
  explicit Vocabulary(std::vector<std::string> words);

  std::vector<std::string> words_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
};

// The one that is kept in `cache_directory` for the data set of `files`, as OpenOrBuild (index_file.h) keeps indexes;
// if there is none that is sound and of these files as they are, that of `build`, which is kept then. `settings`: all
// else that decides what `build` makes. Of more than 100 files only path, size and time are compared, not their ends.
// An empty directory: that of `build`. Errors are those of `build`, of the files, and of writing it.
absl::StatusOr<Vocabulary> OpenOrBuildVocabulary(const Files& files, const std::vector<FileInfo>& infos,
                                                 const std::string& settings, const std::string& cache_directory,
                                                 const std::function<absl::StatusOr<Vocabulary>()>& build);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_VOCABULARY_H_
