// Vocabularies: what is read is written as the same bytes.
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/encoding.h"
#include "trainer/data/vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto vocabulary = downpour::data::Vocabulary::Decode({data, size});
  if (!vocabulary.ok()) return 0;
  const std::string encoded = vocabulary->Encode();
  downpour::fuzz::Require(encoded == downpour::data::AsText({data, size}), "one encoding");
  return 0;
}
