#include "cli/ledger/sample_count.h"

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::cli {
namespace {

constexpr std::array<unsigned char, 4> kLabelMagic = {0, 0, 8, 1};  // bytes, one dimension

constexpr std::int64_t kUsualSyntheticSamples = 10000;  // as docs/manifest.md says

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

absl::StatusOr<std::uint64_t> CountTrainingSamples(const api::DatasetSpec& dataset) {
  if (dataset.synthetic.has_value()) {
    return static_cast<std::uint64_t>(dataset.synthetic->samples.value_or(kUsualSyntheticSamples));
  }
  if (dataset.format != "IDX") return absl::UnimplementedError(absl::StrCat("not of the format ", dataset.format));
  const std::string plain = dataset.path + "/train-labels-idx1-ubyte";
  std::string path;
  for (const std::string& candidate : {plain + ".gz", plain}) {
    std::error_code error;
    if (std::filesystem::exists(candidate, error)) {
      path = candidate;
      break;
    }
  }
  if (path.empty()) return absl::NotFoundError(absl::StrCat("no ", plain, ".gz"));
  errno = 0;
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzopen(path.c_str(), "rb"));  // reads what is not gzip as it is
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno != 0 ? errno : ENOMEM)));
  }
  std::array<unsigned char, 8> header{};
  if (gzread(file.get(), header.data(), header.size()) != static_cast<int>(header.size()) ||
      std::memcmp(header.data(), kLabelMagic.data(), kLabelMagic.size()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not an idx file of labels"));
  }
  std::uint64_t count = 0;
  for (std::size_t i = 4; i < header.size(); ++i) count = count << 8 | header[i];
  return count;
}

}  // namespace downpour::cli
