#ifndef DOWNPOUR_TRAINER_MODEL_POOLED_CONVOLUTION_H_
#define DOWNPOUR_TRAINER_MODEL_POOLED_CONVOLUTION_H_

#include <torch/types.h>

namespace downpour::model {

// avg_pool2d(relu(conv2d(input, weight, bias)), 2) and its gradients, fused: one sample's columns, products and
// activations stay in the cache, and only the pooled output and one byte an activation are kept for backward.
// For small square kernels on the CPU: input [N, C, H, W], weight [O, C, K, K], bias [O]; fp32, row-major; H and W at
// least K + 1. Throws c10::Error otherwise. The result is [N, O, (H - K + 1) / 2, (W - K + 1) / 2].
torch::Tensor PooledConvolution(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_POOLED_CONVOLUTION_H_
