// downpour-worker whose gradients, values and optimizer are where those of a GPU are, with the kernels of the host.
#include <utility>

#include "trainer/cuda/device_kernels.h"
#include "trainer/worker/program.h"
#include "trainer/worker/worker.h"

// As of downpour-worker.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  return downpour::worker::WorkerMain(argc, argv, [](downpour::worker::WorkerProcessOptions options) {
    options.kernels = downpour::cuda::MakeHostKernels();
    return downpour::worker::WorkerProcess::Create(std::move(options));
  });
}
