#include "trainer/data/formats/image_folder.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/data/formats/text_value.h"

namespace downpour::data {
namespace {

constexpr std::uint64_t kMostImageBytes = std::uint64_t{1} << 30;

bool IsImageName(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg") ||
         absl::EndsWithIgnoreCase(name, ".png");
}

// What is in the folder of a class, or anywhere.
struct Content {
  std::vector<absl::string_view> images;  // below the folder
  std::size_t others = 0;
  absl::string_view other;  // one of them
};

absl::Status NoImage(const std::string& path, const Content& content) {
  return absl::NotFoundError(content.others == 0
                                 ? absl::StrCat(path, ": has no file, expected .jpg, .jpeg or .png files")
                                 : absl::StrFormat("%s: of %d files, as %s, none is a .jpg, .jpeg or .png", path,
                                                   content.others, content.other));
}

class ImageFolderSource final : public SampleSource {
 public:
  ImageFolderSource(const Files& files, std::string folder, const ImageFolderOptions& options,
                    const std::map<std::string, Content>& classes)
      : files_(files), folder_(std::move(folder)), options_(options.image) {
    Column label;
    label.name = "label";
    label.type = ElementType::kI64;
    label.class_names = options.class_names;
    if (label.class_names.empty()) {
      for (const auto& [name, content] : classes) label.class_names.push_back(name);
    }
    label.classes = static_cast<std::int64_t>(label.class_names.size());
    for (const std::string& name : label.class_names) {
      first_of_class_.push_back(size());
      const auto content = classes.find(name);
      if (content == classes.end()) continue;
      for (const absl::string_view image : content->second.images) {
        absl::StrAppend(&names_, image);
        ends_.push_back(names_.size());
      }
    }
    columns_ = {ImageColumn("image", options_), std::move(label)};
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const auto label =
        std::upper_bound(first_of_class_.begin(), first_of_class_.end(), index) - first_of_class_.begin();
    const std::uint64_t begin = index == 0 ? 0 : ends_[index - 1];
    const std::string path = absl::StrCat(folder_, columns_[1].class_names[label - 1], "/",
                                          absl::string_view(names_).substr(begin, ends_[index] - begin));
    const auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    const auto bytes = ReadWhole(**file, kMostImageBytes);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<Value> image = DecodeImage(*bytes, options_);
    if (!image.ok()) return absl::Status(image.status().code(), absl::StrCat(path, ": ", image.status().message()));
    return Sample{*std::move(image), NumberValue<std::int64_t>(label - 1)};
  }

 private:
  const Files& files_;
  const std::string folder_;  // with its slash
  const ImageOptions options_;
  std::vector<Column> columns_;
  // The images' names below the folders of their classes, behind each other, and where each ends.
  std::string names_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::int64_t> first_of_class_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenImageFolder(const Files& files, const std::string& path,
                                                              const ImageFolderOptions& options) {
  if (absl::Status status = CheckOptions(options.image); !status.ok()) return status;
  const std::set<std::string> expected(options.class_names.begin(), options.class_names.end());
  if (expected.size() != options.class_names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a name of the classes is given twice"));
  }
  const absl::StatusOr<std::vector<FileInfo>> infos = files.List(path);
  if (!infos.ok()) return infos.status();
  const std::string folder = absl::EndsWith(path, "/") ? path : absl::StrCat(path, "/");
  std::map<std::string, Content> classes;
  Content all;
  for (const FileInfo& info : *infos) {
    absl::string_view name = info.path;
    if (!absl::ConsumePrefix(&name, folder)) {
      return absl::NotFoundError(absl::StrCat(path, ": is a file, expected a folder with one a class"));
    }
    const std::size_t slash = name.find('/');
    const bool is_image = IsImageName(name);
    if (slash == absl::string_view::npos && is_image) {
      return absl::DataLossError(absl::StrCat(info.path, ": is in no folder of a class, expected CLASS/NAME"));
    }
    for (Content* content :
         {&all, slash == absl::string_view::npos ? nullptr : &classes[std::string(name.substr(0, slash))]}) {
      if (content == nullptr) continue;
      if (is_image) {
        content->images.push_back(name.substr(slash + 1));
      } else {
        ++content->others;
        content->other = name;
      }
    }
  }
  if (all.images.empty()) return NoImage(path, all);
  for (const auto& [name, content] : classes) {
    if (content.images.empty()) return NoImage(absl::StrCat(folder, name), content);
    if (!expected.empty() && !expected.contains(name)) {
      return absl::DataLossError(absl::StrFormat("%s: is none of the %d classes, of which the first is \"%s\"",
                                                 absl::StrCat(folder, name), options.class_names.size(),
                                                 options.class_names.front()));
    }
  }
  return std::make_unique<ImageFolderSource>(files, folder, options, classes);
}

}  // namespace downpour::data
