// Manifests of checkpoints: what is taken has each slice once and a ledger within its plan, and can be written again.
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/block.h"
#include "trainer/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace checkpoint = downpour::checkpoint;
  using downpour::fuzz::Require;
  const auto manifest = checkpoint::ParseManifest({data, size});
  if (!manifest.ok()) return 0;
  const std::string bytes = checkpoint::EncodeManifest(*manifest);
  const auto again = checkpoint::ParseManifest(checkpoint::BytesOf(bytes));
  Require(again.ok(), "what was read can be written and read again");
  const auto remade = checkpoint::MakeManifest(*manifest, {manifest->files().begin(), manifest->files().end()});
  Require(remade.ok(), "it follows from its files");
  Require(remade->updates() == manifest->updates() && remade->watermark() == manifest->watermark(),
          "the ledger is that of the files");
  Require(checkpoint::ParseCheckpointName(checkpoint::CheckpointName(*manifest)).has_value(), "it has a name");
  return 0;
}

#ifdef DOWNPOUR_LIBFUZZER

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Without this every mutation would end at a checksum: signs the message anew, now and then.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0 || size < 24) return size;
  const std::uint64_t length = size - 24;
  std::memcpy(data + 8, &length, sizeof(length));
  std::uint32_t checksum = downpour::wire::Crc32c({data + 24, size - 24});
  std::memcpy(data + 16, &checksum, sizeof(checksum));
  checksum = downpour::wire::Crc32c({data, 20});
  std::memcpy(data + 20, &checksum, sizeof(checksum));
  return size;
}

#endif
