#include "trainer/cuda/testing/emulated_cuda.h"

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

dim3 threadIdx, blockIdx, gridDim;

namespace downpour::cuda::emulated {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;

struct Thread {
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  ucontext_t context;
  bool ended = false;
  unsigned exchanges = 0;
};

// Those who wait for each other.
struct Meeting {
  unsigned expected = 0;
  unsigned waiting = 0;
  unsigned held = 0;
};

struct Block {
  std::vector<Thread> threads;
  Meeting all;
  std::vector<Meeting> warps;
  // Of each warp, the last two exchanges: one may be read while the next is written.
  std::vector<Lanes> lanes;
  ucontext_t scheduler;
  const std::function<void()>* body = nullptr;
};
Block block;

void Open(Meeting& meeting) {
  meeting.waiting = 0;
  ++meeting.held;
}

void Wait(Meeting& meeting) {
  const unsigned self = threadIdx.x;
  const unsigned held = meeting.held;
  if (++meeting.waiting == meeting.expected) {
    Open(meeting);
    return;
  }
  while (meeting.held == held) swapcontext(&block.threads[self].context, &block.scheduler);
}

void Leave(Meeting& meeting) {
  --meeting.expected;
  if (meeting.expected != 0 && meeting.waiting == meeting.expected) Open(meeting);
}

void Begin() {
  (*block.body)();
  block.threads[threadIdx.x].ended = true;
  Leave(block.all);
  Leave(block.warps[threadIdx.x / 32]);
}

void RunBlock(unsigned threads, std::mt19937& random) {
  if (block.threads.size() < threads) block.threads = std::vector<Thread>(threads);
  block.all = {threads, 0, 0};
  block.warps.assign(threads / 32, {32, 0, 0});
  block.lanes.resize(threads / 32 * 2);
  for (unsigned i = 0; i < threads; ++i) {
    Thread& thread = block.threads[i];
    thread.ended = false;
    thread.exchanges = 0;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = &block.scheduler;
    makecontext(&thread.context, &Begin, 0);
  }
  std::vector<unsigned> order(threads);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  while (!order.empty()) {
    for (const unsigned i : order) {
      threadIdx.x = i;
      swapcontext(&block.scheduler, &block.threads[i].context);
    }
    std::erase_if(order, [](unsigned i) { return block.threads[i].ended; });
  }
}

}  // namespace

cudaError_t Run(dim3 grid, unsigned threads, const std::function<void()>& body) {
  static std::mt19937 random(1);
  if (grid.x == 0 || grid.y == 0 || grid.z != 1 || threads == 0 || threads % 32 != 0) return cudaErrorInvalidValue;
  gridDim = grid;
  block.body = &body;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) RunBlock(threads, random);
  }
  return cudaSuccess;
}

void WaitForBlock() { Wait(block.all); }

Lanes Exchange(std::uint64_t value) {
  const unsigned warp = threadIdx.x / 32;
  Lanes& lanes = block.lanes[warp * 2 + block.threads[threadIdx.x].exchanges++ % 2];
  lanes.values[threadIdx.x % 32] = value;
  Wait(block.warps[warp]);
  return lanes;
}

}  // namespace downpour::cuda::emulated
