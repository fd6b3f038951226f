#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZERS_KERNEL_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZERS_KERNEL_H_

// A function that goes over many floats, cloned for wider vectors. Its loops begin with DOWNPOUR_INDEPENDENT_STEPS:
// what is updated may be the value itself, never a part of it that is shifted. Not under sanitizers: the resolvers of
// clones run before these are set up.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DOWNPOUR_KERNEL __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DOWNPOUR_KERNEL
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define DOWNPOUR_INDEPENDENT_STEPS _Pragma("GCC ivdep")
#else
#define DOWNPOUR_INDEPENDENT_STEPS
#endif

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZERS_KERNEL_H_
