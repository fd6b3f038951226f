// Records of a link over shared memory: whatever decodes encodes to the same bytes.
#include <vector>

#include "absl/types/span.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/wire/local_record.h"

using downpour::fuzz::Require;
namespace wire = downpour::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::Span<const std::uint8_t> bytes(data, size);
  const auto record = wire::DecodeRecord(bytes);
  if (!record.ok()) return 0;
  Require(absl::Span<const std::uint8_t>(wire::EncodeRecord(*record)) == bytes, "a record has one encoding");
  Require(record->body.size() <= wire::kMostBodyBytes, "a body is bounded");
  if (record->has_message() && !record->in_region()) {
    Require(record->body.size() == record->length, "a message lies in the record, whole, or in the region");
  }
  if (record->purpose == wire::RecordPurpose::kError) Require(!wire::StatusOf(*record).ok(), "an error is one");
  return 0;
}
