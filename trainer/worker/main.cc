// downpour-worker: pulls, computes gradients with LibTorch, pushes.
#include <utility>

#include "trainer/worker/program.h"
#include "trainer/worker/worker.h"
#ifdef DOWNPOUR_ARROW
#include "trainer/data/arrow_readers.h"
#endif

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  return downpour::worker::WorkerMain(argc, argv, [](downpour::worker::WorkerProcessOptions options) {
#ifdef DOWNPOUR_ARROW
    options.arrow = downpour::data::MakeArrowReaders();
#endif
    return downpour::worker::WorkerProcess::Create(std::move(options));
  });
}
