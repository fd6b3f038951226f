// Index files in a cache: what is used lies within the files, whatever the cache has. Checksums are put right, so that
// more than these is looked at.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/index_file.h"
#include "trainer/wire/crc32c.h"

namespace {

std::string WithChecksums(std::string bytes) {
  constexpr std::size_t kHeaderBytes = 48;
  if (bytes.size() < kHeaderBytes) return bytes;
  std::uint64_t entries = 0;
  std::memcpy(&entries, bytes.data() + 16, sizeof(entries));
  const absl::string_view rest = absl::string_view(bytes).substr(kHeaderBytes);
  const std::size_t entry_bytes = entries > rest.size() / 16 ? rest.size() : 16 * entries;
  const std::uint32_t of_entries = downpour::wire::Crc32c(downpour::data::AsBytes(rest.substr(0, entry_bytes)));
  const std::uint32_t of_description = downpour::wire::Crc32c(downpour::data::AsBytes(rest.substr(entry_bytes)));
  std::memcpy(bytes.data() + 32, &of_entries, 4);
  std::memcpy(bytes.data() + 36, &of_description, 4);
  const std::uint32_t of_header =
      downpour::wire::Crc32c(downpour::data::AsBytes(absl::string_view(bytes).substr(0, 44)));
  std::memcpy(bytes.data() + 44, &of_header, 4);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  downpour::data::MemoryFiles files;
  files.Put("a", "0123456789");
  files.Put("b", "01234");
  std::string folder = (std::filesystem::temp_directory_path() / "index-fuzz-XXXXXX").string();
  downpour::fuzz::Require(mkdtemp(folder.data()) != nullptr, "a directory for the cache");
  std::ofstream(downpour::data::IndexPath({"a", "b"}, "test", folder), std::ios::binary)
      << WithChecksums(std::string(reinterpret_cast<const char*>(data), size));
  const auto index = OpenOrBuild(files, {"a", "b"}, "test", folder, [](downpour::data::IndexBuilder& builder) {
    return builder.Add({0, 1, 2});
  });
  downpour::fuzz::Require(index.ok(), "a broken index is built anew");
  for (std::int64_t i = 0; i < index->size(); ++i) {
    const downpour::data::IndexEntry entry = index->entry(i);
    downpour::fuzz::Require(entry.file < 2, "a file of the list");
    const std::uint64_t bytes = entry.file == 0 ? 10 : 5;
    downpour::fuzz::Require(entry.offset <= bytes && entry.bytes <= bytes - entry.offset, "within the file");
  }
  std::filesystem::remove_all(folder);
  return 0;
}
