// Manifests: parsing never throws, and a valid one survives being written with its defaults and read again.
#include <string>
#include <string_view>

#include "operator/api/manifest.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const downpour::api::ParsedManifest manifest = downpour::api::ParseManifest(text);
  if (!manifest.errors.empty()) return 0;
  const std::string json = downpour::api::ToJson(manifest.job);
  const downpour::api::ParsedManifest again = downpour::api::ParseManifest(json);
  downpour::fuzz::Require(again.errors.empty(), "a written manifest is valid");
  downpour::fuzz::Require(downpour::api::ToJson(again.job) == json, "a written manifest reads back to the same job");
  return 0;
}
