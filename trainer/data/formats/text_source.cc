#include "trainer/data/formats/text_source.h"

#include <cstdint>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/file_window.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/formats/text_value.h"
#include "trainer/data/index_file.h"

namespace downpour::data {
namespace {

constexpr std::uint64_t kMostTextBytes = std::uint64_t{64} << 20;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

std::vector<Column> MakeColumns(const Categories* categories) {
  Column text;
  text.name = "text";
  text.type = ElementType::kU8;
  text.shape = {kAnyExtent};
  text.text = true;
  if (categories == nullptr) return {text};
  Column label;
  label.name = "label";
  label.type = ElementType::kI64;
  label.class_names = categories->names();
  label.classes = static_cast<std::int64_t>(label.class_names.size());
  return {text, label};
}

absl::StatusOr<std::string> ReadText(const RandomAccessFile& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  const absl::Status read = file.ReadAt(offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  if (!read.ok()) return read;
  return text;
}

// Without the carriage return that belongs to the end of a line.
absl::string_view WithoutReturn(absl::string_view line) { return absl::StripSuffix(line, "\r"); }

// Goes through one file line by line.
absl::Status IndexLines(const RandomAccessFile& file, std::uint32_t number, CategoriesBuilder* labels,
                        IndexBuilder* index) {
  const std::string& path = file.info().path;
  FileWindow window(file);
  if (absl::Status status = window.More(); !status.ok()) return status;
  if (absl::StartsWith(window.text(), kByteOrderMark)) window.Consume(kByteOrderMark.size());
  std::size_t searched = 0;
  std::uint64_t line_number = 1;
  const auto too_long = [&] {
    return absl::DataLossError(absl::StrFormat("%s: line %d: found a line of more than %d bytes, expected shorter ones",
                                               path, line_number, kMostTextBytes));
  };
  while (!window.text().empty() || !window.at_end()) {
    std::size_t end = window.text().find('\n', searched);
    if (end == absl::string_view::npos && !window.at_end()) {
      searched = window.text().size();
      if (searched > kMostTextBytes) return too_long();
      if (absl::Status status = window.More(); !status.ok()) return status;
      continue;
    }
    const bool last = end == absl::string_view::npos;
    if (last) end = window.text().size();
    const absl::string_view line = WithoutReturn(window.text().substr(0, end));
    if (line.size() > kMostTextBytes) return too_long();
    if (labels != nullptr) {
      const std::size_t tab = line.find('\t');
      if (tab == absl::string_view::npos) {
        return absl::DataLossError(absl::StrFormat("%s: line %d: found %s without a tab, expected LABEL<TAB>TEXT", path,
                                                   line_number, Excerpt(line)));
      }
      if (absl::Status status = labels->Add(line.substr(0, tab)); !status.ok()) {
        return absl::Status(status.code(),
                            absl::StrFormat("%s: line %d: label: %s", path, line_number, status.message()));
      }
    }
    if (absl::Status status = index->Add({number, window.offset(), line.size()}); !status.ok()) return status;
    window.Consume(last ? end : end + 1);
    searched = 0;
    ++line_number;
  }
  return absl::OkStatus();
}

class LinesSource final : public SampleSource {
 public:
  LinesSource(const Files& files, IndexFile index, bool labelled, Categories categories)
      : index_(std::move(index)),
        files_(files, index_.files()),
        labelled_(labelled),
        categories_(std::move(categories)),
        columns_(MakeColumns(labelled ? &categories_ : nullptr)) {}

  std::int64_t size() const override { return index_.size(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const IndexEntry entry = index_.entry(index);
    const auto broken = [&](absl::string_view what) {
      return absl::DataLossError(absl::StrFormat("%s: line %d: %s", files_.infos()[entry.file].path,
                                                 index - index_.first(entry.file) + 1, what));
    };
    const absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files_.Open(entry.file);
    if (!file.ok()) return file.status();
    const absl::StatusOr<std::string> line = ReadText(**file, entry.offset, entry.bytes);
    if (!line.ok()) return line.status();
    absl::string_view text = *line;
    if (const std::size_t bad = FindBadText(text); bad != absl::string_view::npos) {
      return broken(DescribeBadText(text, bad));
    }
    if (!labelled_) return Sample{TextValue(text)};
    const std::size_t tab = text.find('\t');
    if (tab == absl::string_view::npos) return broken("found no tab, expected LABEL<TAB>TEXT");
    const std::int64_t id = categories_.IdOf(text.substr(0, tab));
    if (id < 0) {
      return broken(absl::StrFormat("found the label %s, expected one of the %d classes", Excerpt(text.substr(0, tab)),
                                    categories_.names().size()));
    }
    return Sample{TextValue(text.substr(tab + 1)), NumberValue(id)};
  }

 private:
  const IndexFile index_;
  const OpenFiles files_;
  const bool labelled_;
  const Categories categories_;
  const std::vector<Column> columns_;
};

absl::StatusOr<std::unique_ptr<SampleSource>> OpenLines(const Files& files, const std::string& path,
                                                        const TextOptions& options) {
  const absl::StatusOr<std::vector<FileInfo>> infos = ListFiles(files, path, options.suffix);
  if (!infos.ok()) return infos.status();
  std::vector<std::string> paths;
  for (const FileInfo& info : *infos) paths.push_back(info.path);
  const bool labelled = options.layout == TextLayout::kLabelledLines;
  absl::StatusOr<IndexFile> index = OpenOrBuild(
      files, paths, labelled ? "labelled lines 1" : "lines 1", options.cache_directory, [&](IndexBuilder& builder) {
        CategoriesBuilder labels;
        for (std::uint32_t i = 0; i < paths.size(); ++i) {
          const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files.Open(paths[i]);
          if (!file.ok()) return file.status();
          absl::Status status = IndexLines(**file, i, labelled ? &labels : nullptr, &builder);
          if (!status.ok()) return status;
        }
        Encoder notes;
        for (const std::string& name : labels.Sorted()) notes.PutText(name);
        builder.SetNotes(notes.bytes());
        return absl::OkStatus();
      });
  if (!index.ok()) return index.status();
  std::vector<std::string> class_names = options.class_names;
  if (class_names.empty()) {
    Decoder notes(index->notes());
    while (!notes.rest().empty()) {
      if (std::string name; notes.TakeText(&name)) {
        class_names.push_back(std::move(name));
      } else {
        return absl::InternalError(absl::StrCat(path, ": the notes of its index cannot be read"));
      }
    }
  }
  return std::make_unique<LinesSource>(files, *std::move(index), labelled, Categories(std::move(class_names)));
}

class FoldersSource final : public SampleSource {
 public:
  // `labels`: one a file.
  FoldersSource(const Files& files, std::vector<FileInfo> infos, std::vector<std::int64_t> labels,
                const Categories& categories)
      : files_(files, std::move(infos)), labels_(std::move(labels)), columns_(MakeColumns(&categories)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const FileInfo& info = files_.infos()[static_cast<std::size_t>(index)];
    if (info.bytes > kMostTextBytes) {
      return absl::DataLossError(
          absl::StrFormat("%s: found %d bytes, expected no more than %d", info.path, info.bytes, kMostTextBytes));
    }
    const absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files_.Open(static_cast<std::size_t>(index));
    if (!file.ok()) return file.status();
    const absl::StatusOr<std::string> whole = ReadText(**file, 0, info.bytes);
    if (!whole.ok()) return whole.status();
    const absl::string_view text = absl::StripPrefix(*whole, kByteOrderMark);
    if (const std::size_t bad = FindBadText(text); bad != absl::string_view::npos) {
      return absl::DataLossError(
          absl::StrFormat("%s: byte %d: %s", info.path, whole->size() - text.size() + bad, DescribeBadText(text, bad)));
    }
    return Sample{TextValue(text), NumberValue(labels_[static_cast<std::size_t>(index)])};
  }

 private:
  const OpenFiles files_;
  const std::vector<std::int64_t> labels_;
  const std::vector<Column> columns_;
};

absl::StatusOr<std::unique_ptr<SampleSource>> OpenFolders(const Files& files, const std::string& path,
                                                          const TextOptions& options) {
  absl::StatusOr<std::vector<FileInfo>> found = files.List(path);
  if (!found.ok()) return found.status();
  CategoriesBuilder folders;
  std::vector<FileInfo> infos;
  std::vector<std::string> folder_of;
  for (FileInfo& info : *found) {
    absl::string_view below = info.path;
    if (!absl::ConsumePrefix(&below, path) || !absl::EndsWith(below, options.suffix)) continue;
    absl::ConsumePrefix(&below, "/");
    const std::size_t slash = below.find('/');
    if (slash == absl::string_view::npos) continue;
    const absl::string_view folder = below.substr(0, slash);
    if (const std::size_t bad = FindBadText(folder); bad != absl::string_view::npos) {
      return absl::DataLossError(
          absl::StrFormat("%s: the name of a folder, %s: %s", path, Excerpt(folder), DescribeBadText(folder, bad)));
    }
    if (absl::Status status = folders.Add(folder); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": folders: ", status.message()));
    }
    folder_of.emplace_back(folder);
    infos.push_back(std::move(info));
  }
  if (infos.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s: found no file whose name ends in \"%s\" in a folder, expected a folder for each class",
                        path, options.suffix));
  }
  const Categories categories(options.class_names.empty() ? folders.Sorted() : options.class_names);
  std::vector<std::int64_t> labels;
  for (const std::string& folder : folder_of) {
    labels.push_back(categories.IdOf(folder));
    if (labels.back() < 0) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: found the folder %s, expected those of the classes %s",
                                                        path, Excerpt(folder),
                                                        Excerpt(absl::StrJoin(categories.names(), ", "))));
    }
  }
  return std::make_unique<FoldersSource>(files, std::move(infos), std::move(labels), categories);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenText(const Files& files, const std::string& path,
                                                       const TextOptions& options) {
  const std::set<std::string> unique(options.class_names.begin(), options.class_names.end());
  if (unique.size() != options.class_names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found the name of a class twice, expected names that differ"));
  }
  if (options.layout == TextLayout::kLines && !options.class_names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found names of classes, but lines without labels"));
  }
  return options.layout == TextLayout::kFolders ? OpenFolders(files, path, options) : OpenLines(files, path, options);
}

}  // namespace downpour::data
