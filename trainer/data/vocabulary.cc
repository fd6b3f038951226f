#include "trainer/data/vocabulary.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/encoding.h"
#include "trainer/data/index_file.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

constexpr absl::string_view kMagic = "DPVC";
constexpr std::uint16_t kVersion = 1;
constexpr std::uint16_t kHeaderBytes = 32;
constexpr std::size_t kMostFilesToLookAt = 100;

bool InWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80;
}

// Calls `take` with every word.
template <typename Take>
void EachWord(absl::string_view text, const Take& take) {
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && InWord(text[i])) {
      word.push_back(absl::ascii_tolower(static_cast<unsigned char>(text[i])));
    } else if (!word.empty()) {
      take(word);
      word.clear();
    }
  }
}

bool IsWord(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return InWord(c) && !absl::ascii_isupper(static_cast<unsigned char>(c));
  });
}

std::string EncodeHeader(std::uint32_t words, const std::string& content) {
  Encoder header;
  for (const char letter : kMagic) header.Put<char>(letter);
  header.Put<std::uint16_t>(kVersion);
  header.Put<std::uint16_t>(kHeaderBytes);
  header.Put<std::uint64_t>(kHeaderBytes + content.size());
  header.Put<std::uint32_t>(words);
  header.Put<std::uint32_t>(wire::Crc32c(AsBytes(content)));
  header.Put<std::uint32_t>(0);
  header.Put<std::uint32_t>(wire::Crc32c(AsBytes(header.bytes())));
  return header.bytes();
}

}  // namespace

std::vector<std::string> SplitWords(absl::string_view text) {
  std::vector<std::string> words;
  EachWord(text, [&words](const std::string& word) { words.push_back(word); });
  return words;
}

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {
  std::int32_t id = kFirstWord;
  for (const std::string& word : words_) ids_.emplace(word, id++);
}

absl::StatusOr<Vocabulary> Vocabulary::Build(const SampleSource& source, const std::string& column,
                                             absl::Span<const std::int64_t> indices, std::size_t most,
                                             std::uint64_t most_broken) {
  if (most < 1 || most > kMostWords) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a vocabulary of at most %d words, expected 1 to %d", most, kMostWords));
  }
  const std::vector<Column>& columns = source.columns();
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&column](const Column& candidate) { return candidate.name == column; });
  if (found == columns.end() || !found->text) {
    return absl::InvalidArgumentError(absl::StrFormat("vocabulary: column \"%s\": %s, expected a column of text",
                                                      column, found == columns.end() ? "there is none" : "is no text"));
  }
  const auto position = static_cast<std::size_t>(found - columns.begin());
  std::uint64_t broken = 0;
  std::unordered_map<std::string, std::uint64_t> counts;
  for (const std::int64_t index : indices) {
    const absl::StatusOr<Sample> sample = source.Read(index);
    if (absl::IsDataLoss(sample.status()) && broken++ < most_broken) continue;
    if (!sample.ok()) return sample.status();
    const std::vector<std::byte>& bytes = (*sample)[position].bytes;
    EachWord({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
             [&counts](const std::string& word) { ++counts[word]; });
  }
  std::vector<std::pair<std::uint64_t, std::string>> ranked;
  ranked.reserve(counts.size());
  for (auto& [word, count] : counts) ranked.emplace_back(count, word);
  counts.clear();
  std::sort(ranked.begin(), ranked.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<std::string> words;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i) words.push_back(std::move(ranked[i].second));
  return Vocabulary(std::move(words));
}

std::string Vocabulary::Encode() const {
  Encoder content;
  for (const std::string& word : words_) content.PutText(word);
  return EncodeHeader(static_cast<std::uint32_t>(words_.size()), content.bytes()) + content.bytes();
}

absl::StatusOr<Vocabulary> Vocabulary::Decode(absl::Span<const std::uint8_t> bytes) {
  if (bytes.size() < kHeaderBytes || AsText(bytes.subspan(0, kMagic.size())) != kMagic) {
    return absl::DataLossError(
        absl::StrFormat("found %d bytes that do not begin with %s, expected a vocabulary", bytes.size(), kMagic));
  }
  Decoder header(AsText(bytes.subspan(kMagic.size())));
  std::uint16_t version = 0;
  std::uint16_t header_bytes = 0;
  std::uint64_t length = 0;
  std::uint32_t count = 0;
  header.Take(&version);
  header.Take(&header_bytes);
  header.Take(&length);
  header.Take(&count);
  if (version != kVersion) {
    return absl::DataLossError(absl::StrFormat("found version %d of the format, expected %d", version, kVersion));
  }
  if (length != bytes.size()) {
    return absl::DataLossError(absl::StrFormat("found %d bytes, expected %d", bytes.size(), length));
  }
  const std::string content(AsText(bytes.subspan(kHeaderBytes)));
  // What is encoded again is the same, the checksums too.
  if (AsText(bytes.subspan(0, kHeaderBytes)) != EncodeHeader(count, content)) {
    return absl::DataLossError("found a header that does not fit the words: wrong length, checksum or reserved bytes");
  }
  Decoder decoder(content);
  std::vector<std::string> words;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string word;
    if (!decoder.TakeText(&word)) {
      return absl::DataLossError(absl::StrFormat("found the end in word %d, expected %d words", i, count));
    }
    if (!IsWord(word)) {
      return absl::DataLossError(absl::StrFormat("word %d: found what SplitWords does not make, expected a word", i));
    }
    words.push_back(std::move(word));
  }
  if (!decoder.done()) {
    return absl::DataLossError(absl::StrFormat("found %d bytes behind %d words", decoder.rest().size(), count));
  }
  Vocabulary vocabulary(std::move(words));
  if (vocabulary.ids_.size() != vocabulary.words_.size()) {
    return absl::DataLossError("found a word twice, expected words that differ");
  }
  return vocabulary;
}

std::int32_t Vocabulary::IdOf(absl::string_view word) const {
  const auto id = ids_.find(word);
  return id == ids_.end() ? kUnknown : id->second;
}

std::vector<std::int32_t> Vocabulary::Ids(absl::string_view text) const {
  std::vector<std::int32_t> ids;
  EachWord(text, [&](const std::string& word) { ids.push_back(IdOf(word)); });
  return ids;
}

absl::StatusOr<Vocabulary> OpenOrBuildVocabulary(const Files& files, const std::vector<FileInfo>& infos,
                                                 const std::string& settings, const std::string& cache_directory,
                                                 const std::function<absl::StatusOr<Vocabulary>()>& build) {
  if (cache_directory.empty()) return build();
  std::string format = absl::StrCat("vocabulary 1, ", settings);
  std::vector<std::string> paths;
  if (infos.size() > kMostFilesToLookAt) {  // to read the ends of many small ones is to read them
    Encoder listing;
    for (const FileInfo& info : infos) {
      listing.PutText(info.path);
      listing.Put<std::uint64_t>(info.bytes);
      listing.Put<std::int64_t>(info.modified);
    }
    absl::StrAppend(&format, ", of ", infos.size(), " files ", wire::Crc32c(AsBytes(listing.bytes())));
  } else {
    paths.reserve(infos.size());
    for (const FileInfo& info : infos) paths.push_back(info.path);
  }
  const auto make = [&build](IndexBuilder& builder) -> absl::Status {
    const absl::StatusOr<Vocabulary> built = build();
    if (built.ok()) builder.SetNotes(built->Encode());
    return built.status();
  };
  const absl::StatusOr<IndexFile> kept = OpenOrBuild(files, paths, format, cache_directory, make);
  if (!kept.ok()) return kept.status();
  absl::StatusOr<Vocabulary> vocabulary = Vocabulary::Decode(AsBytes(kept->notes()));
  // Its checksums are right: somebody else has made it.
  return vocabulary.ok() ? std::move(vocabulary) : build();
}

}  // namespace downpour::data
