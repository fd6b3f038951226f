// The right table, on a machine without a GPU: as CUDA says it there. Nothing else may be called.
#include "trainer/cuda/plugin_table.h"

namespace {

constexpr downpour::cuda::PluginTable kTable = {
    .version = downpour::cuda::kPluginVersion,
    .size = sizeof(downpour::cuda::PluginTable),
    .error_text = [](int error) { return error == 35 ? "the driver is too old" : "another error"; },
    .count_devices =
        [](int* count) {
          *count = 0;
          return 35;
        },
    .use_device = nullptr,
    .allocate = nullptr,
    .release = nullptr,
    .copy = nullptr,
    .synchronize = nullptr,
    .memory_info = nullptr,
    .allocate_host = nullptr,
    .release_host = nullptr,
    .create_stream = nullptr,
    .destroy_stream = nullptr,
    .create_event = nullptr,
    .destroy_event = nullptr,
    .record_event = nullptr,
    .wait_event = nullptr,
    .query_event = nullptr,
    .elapsed_ms = nullptr,
    .encode_scratch = nullptr,
    .encode = nullptr,
    .sum = nullptr,
    .step = nullptr,
    .clear = nullptr,
    .sum_squares = nullptr,
    .round_bf16 = nullptr,
    .widen_bf16 = nullptr,
};

}  // namespace

extern "C" const downpour::cuda::PluginTable* downpour_cuda_table() { return &kTable; }
