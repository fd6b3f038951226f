#include "trainer/wire/receive_memory.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace downpour::wire {

void KeepReceiveMemory() {
#if defined(__GLIBC__)
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  // Setting one threshold freezes the other at 128 KiB; this is where it would have grown to.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

void ShareFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 2);
#endif
}

}  // namespace downpour::wire
