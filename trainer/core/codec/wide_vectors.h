#ifndef DOWNPOUR_TRAINER_CORE_CODEC_WIDE_VECTORS_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_WIDE_VECTORS_H_

// Before a function with a hot loop: cloned for wider vectors. Not under sanitizers: the resolvers of clones run before
// these are set up.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DOWNPOUR_WIDE_VECTORS
#endif
#endif
#if !defined(DOWNPOUR_WIDE_VECTORS) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define DOWNPOUR_WIDE_VECTORS
#endif
#if !defined(DOWNPOUR_WIDE_VECTORS)
#define DOWNPOUR_WIDE_VECTORS __attribute__((target_clones("default", "avx2", "avx512f")))
#endif

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_WIDE_VECTORS_H_
