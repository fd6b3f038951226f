#include "tests/support/self_join.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace {

std::atomic<int> self_joins = 0;

}  // namespace

extern "C" int pthread_join(pthread_t thread, void** value) {
  if (pthread_equal(thread, pthread_self()) != 0) ++self_joins;
  static const auto join = reinterpret_cast<int (*)(pthread_t, void**)>(dlsym(RTLD_NEXT, "pthread_join"));
  return join(thread, value);
}

namespace downpour::testing {

int SelfJoins() { return self_joins; }

}  // namespace downpour::testing
