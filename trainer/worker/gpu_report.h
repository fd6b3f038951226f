#ifndef DOWNPOUR_TRAINER_WORKER_GPU_REPORT_H_
#define DOWNPOUR_TRAINER_WORKER_GPU_REPORT_H_

#include <string>

namespace downpour::worker {

// What a worker finds of GPUs on this machine, for people: a line each of LibTorch's device, our kernels, NCCL and the
// driver's figures, which says why a part cannot be used. False: a worker could not compute on a GPU.
bool FindGpus(std::string* text);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GPU_REPORT_H_
