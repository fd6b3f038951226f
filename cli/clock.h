#ifndef DOWNPOUR_CLI_CLOCK_H_
#define DOWNPOUR_CLI_CLOCK_H_

#include <chrono>

namespace downpour::cli {

// Seconds of wall-clock time that never go back: the wall clock is read once and the steady clock counts from there.
// Times of the status, of processes and of events are on this clock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  double Now() const override {
    return wall_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - steady_).count();
  }

 private:
  std::chrono::steady_clock::time_point steady_ = std::chrono::steady_clock::now();
  double wall_ = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_CLOCK_H_
