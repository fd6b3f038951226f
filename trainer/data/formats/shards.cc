#include "trainer/data/formats/shards.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kMostShards = 1'000'000;

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c); });
}

}  // namespace

absl::string_view FileName(absl::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

absl::StatusOr<std::vector<std::string>> ExpandRange(const std::string& path) {
  const std::size_t open = path.find('{');
  if (open == std::string::npos) return std::vector<std::string>{path};
  const std::size_t close = path.find('}', open);
  const absl::string_view range =
      close == std::string::npos ? "" : absl::string_view(path).substr(open + 1, close - open - 1);
  const std::size_t dots = std::min(range.find(".."), range.size());
  const absl::string_view first_text = range.substr(0, dots);
  const absl::string_view last_text = range.substr(std::min(dots + 2, range.size()));
  std::int64_t first = 0;
  std::int64_t last = 0;
  if (!IsNumber(first_text) || !IsNumber(last_text) || !absl::SimpleAtoi(first_text, &first) ||
      !absl::SimpleAtoi(last_text, &last) || first > last || path.find('{', open + 1) != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no range of shards in its braces, expected one as {0000..0009}"));
  }
  if (last - first >= kMostShards) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is a range of %d shards, expected %d at most", path, last - first + 1, kMostShards));
  }
  std::vector<std::string> paths;
  for (std::int64_t shard = first; shard <= last; ++shard) {
    paths.push_back(absl::StrFormat("%s%0*d%s", absl::string_view(path).substr(0, open),
                                    static_cast<int>(first_text.size()), shard,
                                    absl::string_view(path).substr(close + 1)));
  }
  return paths;
}

absl::StatusOr<std::vector<std::string>> ListShards(const Files& files, const std::string& path,
                                                    const std::function<bool(absl::string_view name)>& belongs,
                                                    absl::string_view expected) {
  absl::StatusOr<std::vector<std::string>> range = ExpandRange(path);
  if (!range.ok() || range->size() > 1 || range->front() != path) return range;
  const absl::StatusOr<std::vector<FileInfo>> found = files.List(path);
  if (!found.ok()) return found.status();
  if (found->size() == 1 && found->front().path == path) return range;
  std::vector<std::string> paths;
  for (const FileInfo& file : *found) {
    if (belongs(FileName(file.path))) paths.push_back(file.path);
  }
  if (!paths.empty()) return paths;
  return absl::NotFoundError(found->empty() ? absl::StrCat(path, ": has no file, expected ", expected)
                                            : absl::StrFormat("%s: of %d files, as %s, none is %s", path, found->size(),
                                                              FileName(found->front().path), expected));
}

}  // namespace downpour::data
