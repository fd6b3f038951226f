// Compiled once for each way in which a library may not be what LoadPlugin expects.
#include "trainer/cuda/plugin_table.h"

#if defined(DOWNPOUR_FAKE_NO_SYMBOL)
extern "C" int SomethingElse() { return 1; }
#elif defined(DOWNPOUR_FAKE_NO_TABLE)
extern "C" const downpour::cuda::PluginTable* downpour_cuda_table() { return nullptr; }
#else

namespace {

// As an older or newer library might begin, and no more of it.
struct Other {
  std::uint32_t version = downpour::cuda::kPluginVersion;
  std::uint32_t size = sizeof(downpour::cuda::PluginTable);
};

#if defined(DOWNPOUR_FAKE_OTHER_VERSION)
constexpr Other kOther = {.version = downpour::cuda::kPluginVersion + 1};
#elif defined(DOWNPOUR_FAKE_OTHER_SIZE)
constexpr Other kOther = {.size = sizeof(downpour::cuda::PluginTable) - 8};
#endif

}  // namespace

extern "C" const Other* downpour_cuda_table() { return &kOther; }
#endif
