// State files of a ps: no length is believed, and what is read has the vectors that it promises.
#include <cstring>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/block.h"
#include "trainer/checkpoint/state_file.h"

namespace {

namespace checkpoint = downpour::checkpoint;
using downpour::fuzz::Require;

class Memory final : public checkpoint::StoreReader {
 public:
  explicit Memory(absl::Span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) override {
    Require(offset <= bytes_.size() && bytes.size() <= bytes_.size() - offset, "reads stay in the file");
    if (!bytes.empty()) std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
    return absl::OkStatus();
  }

 private:
  const absl::Span<const std::uint8_t> bytes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::Span<const std::uint8_t> bytes(data, size);
  const auto reader = checkpoint::StateFileReader::Open(std::make_unique<Memory>(bytes), "file");
  if (!reader.ok()) return 0;
  for (const checkpoint::StateRecord& record : (*reader)->records()) {
    const auto contents = (*reader)->Read(record);
    if (!contents.ok()) return 0;
    for (const auto& vector : contents->vectors) {
      Require(vector.values->size() == record.elements, "a vector is as long as its slice");
    }
    Require(contents->state.slice() == record.slice, "a record holds the state of its slice");
  }
  return 0;
}

#ifdef DOWNPOUR_LIBFUZZER

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Without this every mutation would end at a checksum: signs the blocks anew, now and then.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0 || size < 48 + 24) return size;
  const auto put = [&](std::size_t at, std::uint32_t value) { std::memcpy(data + at, &value, sizeof(value)); };
  const auto get = [&](std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, data + at, sizeof(value));
    return value;
  };
  const auto checksum = [&](std::size_t at, std::size_t count, std::uint32_t before = 0) {
    return downpour::wire::Crc32c({data + at, count}, before);
  };
  put(44, checksum(0, 44));
  std::uint32_t headers = checksum(0, 48);
  std::uint32_t records = 0;
  const std::size_t end = size - 24;
  for (std::size_t at = 48; end - at >= 48; ++records) {
    const std::size_t rest = end - at - 48;
    const std::size_t message = get(at + 8);
    const std::size_t bulk = get(at + 16);
    const bool fits = message <= rest && bulk <= rest - message && get(at + 20) == 0;
    if (fits && seed % 8 != 1) {
      put(at + 12, checksum(at + 48, message));
      put(at + 24, checksum(at + 48 + message, bulk));
    }
    put(at + 44, checksum(at, 44));
    headers = checksum(at, 48, headers);
    if (!fits) break;
    at += 48 + message + bulk;
  }
  if (seed % 8 != 2) {
    put(end + 4, records);
    put(end + 8, static_cast<std::uint32_t>(size));
    put(end + 12, 0);
    put(end + 16, headers);
  }
  put(end + 20, checksum(end, 20));
  return size;
}

#endif
