#ifndef DOWNPOUR_TRAINER_MODEL_LOCAL_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_MODEL_LOCAL_OPTIMIZER_H_

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "trainer/model/model.h"

// LibTorch's optimizers behind Model::TakeStep. Throws what LibTorch throws.
namespace downpour::model {

std::unique_ptr<torch::optim::Optimizer> MakeLocalOptimizer(const LocalOptimizer& options,
                                                            const std::vector<torch::Tensor>& parameters);

// Multiplies all gradients by min(1, most / norm), where the norm is over all of them (Pascanu, Mikolov and Bengio
// 2013, algorithm 1). The sum of squares is in double.
void ClipNorm(const std::vector<torch::Tensor>& parameters, double most);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_LOCAL_OPTIMIZER_H_
