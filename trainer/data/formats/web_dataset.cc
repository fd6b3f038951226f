#include "trainer/data/formats/web_dataset.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/formats/shards.h"
#include "trainer/data/formats/tar.h"
#include "trainer/data/formats/text_value.h"
#include "trainer/data/index_file.h"

namespace downpour::data {
namespace {

constexpr std::uint64_t kMostSampleBytes = std::uint64_t{1} << 30;

constexpr std::array<const char*, 3> kColumns = {"image", "label", "text"};
constexpr std::size_t kImage = 0;
constexpr std::size_t kLabel = 1;
constexpr std::size_t kText = 2;

constexpr std::array<std::pair<const char*, std::size_t>, 5> kExtensions = {
    {{"jpg", kImage}, {"jpeg", kImage}, {"png", kImage}, {"cls", kLabel}, {"txt", kText}}};

// Number of the column that it is of.
std::optional<std::size_t> ColumnOf(absl::string_view extension) {
  for (const auto& [name, column] : kExtensions) {
    if (extension == name) return column;
  }
  return std::nullopt;
}

// The entries of a sample.
struct Group {
  std::string key;
  std::array<std::optional<TarEntry>, kColumns.size()> entries;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  // Names of the columns that it has, in their order.
  std::vector<std::string> columns() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (entries[i].has_value()) names.emplace_back(kColumns[i]);
    }
    return names;
  }
};

// The samples of an archive one by one.
class GroupReader {
 public:
  GroupReader(TarReader tar, std::string path, const std::vector<std::string>& extensions)
      : tar_(std::move(tar)), path_(std::move(path)), extensions_(extensions) {}

  TarReader& tar() { return tar_; }

  // Nothing: that was all.
  absl::StatusOr<std::optional<Group>> Next() {
    std::optional<Group> group;
    while (true) {
      if (!next_.has_value()) {
        absl::StatusOr<std::optional<TarEntry>> entry = tar_.Next();
        if (!entry.ok()) return entry.status();
        if (!entry->has_value()) return group;
        next_ = **std::move(entry);
      }
      const absl::string_view name = next_->name;
      const std::size_t base = name.size() - FileName(name).size();
      const std::size_t dot = std::min(name.find('.', base), name.size());
      const absl::string_view key = name.substr(0, dot);
      const std::string extension = absl::AsciiStrToLower(name.substr(std::min(dot + 1, name.size())));
      const std::optional<std::size_t> column = ColumnOf(extension);
      if (!extensions_.empty() && std::find(extensions_.begin(), extensions_.end(), extension) == extensions_.end()) {
        next_.reset();
        continue;
      }
      if (!column.has_value() || dot == base) {
        return Error(*next_,
                     "cannot be read, expected NAME.jpg, .jpeg, .png, .cls or .txt, or that the data set says "
                     "which extensions are read");
      }
      if (group.has_value() && group->key != key) return group;
      if (!group.has_value()) {
        group.emplace();
        group->key = std::string(key);
        group->begin = next_->begin;
      }
      std::optional<TarEntry>& place = group->entries[*column];
      if (place.has_value()) {
        return Error(*next_, absl::StrCat("is another ", kColumns[*column], " of a sample that has ",
                                          Excerpt(place->name), ", expected one"));
      }
      group->end = next_->end;
      place = std::move(next_);
      next_.reset();
    }
  }

 private:
  absl::Status Error(const TarEntry& entry, const std::string& what) const {
    return absl::DataLossError(
        absl::StrFormat("%s: byte %d: entry %s %s", path_, entry.begin, Excerpt(entry.name), what));
  }

  TarReader tar_;
  const std::string path_;
  const std::vector<std::string>& extensions_;
  std::optional<TarEntry> next_;  // the first of the next sample
};

absl::Status CheckColumns(const Group& group, const std::string& path, absl::string_view expected) {
  const std::string found = absl::StrJoin(group.columns(), ", ");
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: byte %d: sample %s has %s, expected %s, as the first one has", path,
                                             group.begin, Excerpt(group.key), found, expected));
}

// Adds the samples of `paths`, and the names of the columns that all of them have.
absl::Status BuildIndex(const Files& files, const std::vector<std::string>& paths,
                        const std::vector<std::string>& extensions, IndexBuilder& builder) {
  std::optional<std::string> columns;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto file = files.Open(paths[i]);
    if (!file.ok()) return file.status();
    GroupReader groups(TarReader(**file), paths[i], extensions);
    while (true) {
      const absl::StatusOr<std::optional<Group>> next = groups.Next();
      if (!next.ok()) return next.status();
      if (!next->has_value()) break;
      const Group& group = **next;
      if (!columns.has_value()) columns = absl::StrJoin(group.columns(), ", ");
      if (absl::Status status = CheckColumns(group, paths[i], *columns); !status.ok()) return status;
      if (group.end - group.begin > kMostSampleBytes) {
        return absl::DataLossError(absl::StrFormat("%s: byte %d: sample %s has %d bytes, expected %d at most", paths[i],
                                                   group.begin, Excerpt(group.key), group.end - group.begin,
                                                   kMostSampleBytes));
      }
      const IndexEntry entry{static_cast<std::uint32_t>(i), group.begin, group.end - group.begin};
      if (absl::Status status = builder.Add(entry); !status.ok()) return status;
    }
  }
  builder.SetNotes(columns.value_or(""));
  return absl::OkStatus();
}

std::vector<Column> MakeColumns(const WebDatasetOptions& options, const std::string& names) {
  std::vector<Column> columns;
  for (const absl::string_view name : absl::StrSplit(names, ", ")) {
    if (name == kColumns[kImage]) {
      columns.push_back(ImageColumn(std::string(name), options.image));
      continue;
    }
    Column& column = columns.emplace_back();
    column.name = std::string(name);
    if (name == kColumns[kLabel]) {
      column.type = ElementType::kI64;
      column.classes = options.classes;
    } else {
      column.type = ElementType::kU8;
      column.shape = {kAnyExtent};
      column.text = true;
    }
  }
  return columns;
}

class WebDatasetSource final : public SampleSource {
 public:
  WebDatasetSource(const Files& files, const WebDatasetOptions& options, IndexFile index)
      : options_(options),
        index_(std::move(index)),
        files_(files, index_.files()),
        columns_(MakeColumns(options_, index_.notes())) {}

  std::int64_t size() const override { return index_.size(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const IndexEntry place = index_.entry(index);
    const auto file = files_.Open(place.file);
    if (!file.ok()) return file.status();
    const std::string& path = (*file)->info().path;
    GroupReader groups(TarReader(**file, place.offset, place.offset + place.bytes), path, options_.extensions);
    absl::StatusOr<std::optional<Group>> group = groups.Next();
    if (!group.ok()) return group.status();
    if (!group->has_value()) {
      return absl::DataLossError(
          absl::StrFormat("%s: byte %d: found no sample, expected the one that was there before", path, place.offset));
    }
    if (absl::Status status = CheckColumns(**group, path, index_.notes()); !status.ok()) return status;
    Sample sample;
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const std::optional<TarEntry>& entry = (*group)->entries[i];
      if (!entry.has_value()) continue;
      const auto bytes = groups.tar().Read(*entry);
      if (!bytes.ok()) return bytes.status();
      absl::StatusOr<Value> value = ToValue(i, *bytes);
      if (!value.ok()) {
        return absl::Status(value.status().code(), absl::StrFormat("%s: byte %d: entry %s %s", path, entry->begin,
                                                                   Excerpt(entry->name), value.status().message()));
      }
      sample.push_back(*std::move(value));
    }
    return sample;
  }

 private:
  absl::StatusOr<Value> ToValue(std::size_t column, absl::Span<const std::uint8_t> bytes) const {
    if (column == kImage) return DecodeImage(bytes, options_.image);
    if (column == kText) {
      const std::size_t bad = FindBadText(AsText(bytes));
      if (bad == absl::string_view::npos) return TextValue(AsText(bytes));
      return absl::DataLossError(absl::StrFormat("at its byte %d: %s", bad, DescribeBadText(AsText(bytes), bad)));
    }
    std::int64_t label = 0;
    if (!absl::SimpleAtoi(AsText(bytes), &label)) {
      return absl::DataLossError(absl::StrCat("holds ", Excerpt(AsText(bytes)), ", expected a decimal number"));
    }
    if (options_.classes != 0 && (label < 0 || label >= options_.classes)) {
      return absl::DataLossError(absl::StrFormat("holds %d, expected 0 to %d", label, options_.classes - 1));
    }
    return NumberValue<std::int64_t>(label);
  }

  const WebDatasetOptions options_;
  const IndexFile index_;
  const OpenFiles files_;
  const std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenWebDataset(const Files& files, const std::string& path,
                                                             const WebDatasetOptions& options) {
  if (absl::Status status = CheckOptions(options.image); !status.ok()) return status;
  if (options.classes < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d classes, expected 0 or more", path, options.classes));
  }
  for (const std::string& extension : options.extensions) {
    if (!ColumnOf(extension).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": extension ", Excerpt(extension),
                                                     " cannot be read, expected jpg, jpeg, png, cls or txt"));
    }
  }
  const absl::StatusOr<std::vector<std::string>> paths = ListShards(
      files, path, [](absl::string_view name) { return absl::EndsWith(name, ".tar"); }, "a .tar file");
  if (!paths.ok()) return paths.status();
  absl::StatusOr<IndexFile> index =
      OpenOrBuild(files, *paths, absl::StrCat("WebDataset 1, extensions ", absl::StrJoin(options.extensions, " ")),
                  options.cache_directory,
                  [&](IndexBuilder& builder) { return BuildIndex(files, *paths, options.extensions, builder); });
  if (!index.ok()) return index.status();
  if (index->size() == 0) {
    return absl::NotFoundError(
        absl::StrFormat("%s: %d archives without a sample, expected one at least", path, paths->size()));
  }
  return std::make_unique<WebDatasetSource>(files, options, *std::move(index));
}

}  // namespace downpour::data
