#include "operator/controller/thread_pool.h"

#include <system_error>
#include <utility>

#include "spdlog/spdlog.h"

namespace downpour::controller {

ThreadPool::~ThreadPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    for (Seat* seat : idle_) seat->called.Signal();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void ThreadPool::Run(std::function<void()> task) {
  absl::ReleasableMutexLock lock(&mutex_);
  if (!idle_.empty()) {
    Seat* const seat = idle_.back();
    idle_.pop_back();
    seat->task = std::move(task);
    seat->called.Signal();
    return;
  }
  try {
    threads_.emplace_back([this, task]() mutable { Serve(std::move(task)); });
  } catch (const std::system_error& error) {
    lock.Release();
    spdlog::warn("no thread for a task: {}", error.what());
    task();
  }
}

void ThreadPool::Serve(std::function<void()> task) {
  Seat seat;
  while (task) {
    task();
    task = nullptr;  // and what it holds
    absl::MutexLock lock(&mutex_);
    idle_.push_back(&seat);
    while (!seat.task && !closing_) seat.called.Wait(&mutex_);
    task = std::exchange(seat.task, nullptr);
  }
}

}  // namespace downpour::controller
