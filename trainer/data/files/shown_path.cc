#include "trainer/data/files/shown_path.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace downpour::data {

std::string ShownPath(const std::string& path) {
  const std::size_t colon = path.find("://");
  if (colon == std::string::npos) return path;
  const std::string scheme = path.substr(0, colon + 3);
  const std::string rest = path.substr(scheme.size(), path.find('?') - scheme.size());
  const std::size_t end = rest.find('/');
  const std::string authority = rest.substr(0, end);
  const std::string below = end == std::string::npos ? "" : rest.substr(end);
  const std::size_t at = authority.rfind('@');
  if (at == std::string::npos) return absl::StrCat(scheme, authority, below);
  const std::string host = authority.substr(at + 1);
  if (!absl::StartsWithIgnoreCase(scheme, "abfs")) return absl::StrCat(scheme, host, below);
  return absl::StrCat(scheme, authority.substr(0, std::min(at, authority.find(':'))), "@", host, below);
}

}  // namespace downpour::data
