#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZERS_OPTIMIZERS_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZERS_OPTIMIZERS_H_

#include <cstdint>
#include <memory>

#include "downpour/v1/config.pb.h"
#include "trainer/core/optimizers/vector_optimizer.h"

// The rules, each in a file of its name; CreateOptimizer chooses among them and has checked `config`. In all of them
//
//   g = factor x gradient,   and L2 decay is   g += weight_decay x value,   as torch.optim has it
//
// and `rate` is the learning rate of the step. Vectors and scalars have the names of torch.optim.
namespace downpour::core {

// value -= rate x g
std::unique_ptr<VectorOptimizer> CreateSgd(double weight_decay);

// b = momentum x b + g;  value -= rate x b, or with Nesterov's rate x (g + momentum x b)
std::unique_ptr<VectorOptimizer> CreateMomentum(const v1::OptimizerConfig& config, double weight_decay,
                                                std::uint32_t elements);

// Duchi, Hazan and Singer 2011, with which Dean et al. 2012 ran Downpour SGD (section 4.1):
// s += g^2;  value -= rate x g / (sqrt(s) + epsilon)
std::unique_ptr<VectorOptimizer> CreateAdagrad(const v1::OptimizerConfig& config, double weight_decay,
                                               std::uint32_t elements);

// s = decay x s + (1 - decay) x g^2;  value -= rate x g / (sqrt(s) + epsilon)
std::unique_ptr<VectorOptimizer> CreateRmsProp(const v1::OptimizerConfig& config, double weight_decay,
                                               std::uint32_t elements);

// Kingma and Ba 2015, algorithm 1; AdamW: Loshchilov and Hutter 2019, algorithm 2, where decay is value -= rate x
// weight_decay x value in place of L2.
std::unique_ptr<VectorOptimizer> CreateAdam(const v1::OptimizerConfig& config, double weight_decay,
                                            std::uint32_t elements);

// You et al. 2020, algorithm 2, with the identity for phi and a slice in the place of a layer:
// r = Adam's direction + weight_decay x value;  value -= rate x |value| / |r| x r
std::unique_ptr<VectorOptimizer> CreateLamb(const v1::OptimizerConfig& config, double weight_decay,
                                            std::uint32_t elements);

// Zheng et al. 2017, equations 10 and 14: value -= rate x (g + lambda x g^2 x (value - pulled)). Adaptive: lambda /
// sqrt(s + epsilon) in the place of lambda, where s = decay x s + (1 - decay) x g^2.
std::unique_ptr<VectorOptimizer> CreateDelayCompensatedSgd(const v1::OptimizerConfig& config, double weight_decay,
                                                           std::uint32_t elements);

// `inner` with each element of g divided by 1 + |value - pulled| / c before it (Barkai, Hakimi and Schuster 2020,
// "Gap-Aware Mitigation of Gradient Staleness"), where c, the way that a step goes, is base_rate x (root of the moving
// average of g^2, with bias correction, + 1e-8). `base_rate` is the learning rate that schedules begin with.
std::unique_ptr<VectorOptimizer> CreateGapAware(std::unique_ptr<VectorOptimizer> inner, double base_rate,
                                                std::uint32_t elements);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZERS_OPTIMIZERS_H_
