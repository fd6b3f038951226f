#ifndef DOWNPOUR_TRAINER_MODEL_TF32_H_
#define DOWNPOUR_TRAINER_MODEL_TF32_H_

#include <ATen/Context.h>

namespace downpour::model {

// Whether GPUs may round the factors of fp32 products to 10 bits, for the whole process. By itself LibTorch lets cuDNN
// do it and cuBLAS not.
inline void AllowTf32(bool allow) {
  at::globalContext().setAllowTF32CuBLAS(allow);
  at::globalContext().setAllowTF32CuDNN(allow);
}

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_TF32_H_
