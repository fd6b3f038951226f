#ifndef DOWNPOUR_TRAINER_CORE_SOLE_OWNER_H_
#define DOWNPOUR_TRAINER_CORE_SOLE_OWNER_H_

#include <atomic>
#include <memory>

namespace downpour::core {

// Whether nobody else refers to `pointer`, so that it may be written. Only for a pointer from which no other thread can
// make new references: then true stays true, and what others read before they let go came before.
template <typename T>
bool SoleOwner(const std::shared_ptr<T>& pointer) {
  if (pointer.use_count() != 1) return false;
    // Pairs with the release in the others' decrement; the count itself is read relaxed. ThreadSanitizer knows no
    // fences.
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
  return true;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SOLE_OWNER_H_
