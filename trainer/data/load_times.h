#ifndef DOWNPOUR_TRAINER_DATA_LOAD_TIMES_H_
#define DOWNPOUR_TRAINER_DATA_LOAD_TIMES_H_

#include <chrono>

namespace downpour::data {

// Seconds that threads spent so far, all of them together.
struct LoadTimes {
  double read = 0;    // files, and what is parsed of them while they are read
  double decode = 0;  // images
  double transform = 0;
  double collate = 0;
  double sum() const { return read + decode + transform + collate; }
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Of the calling thread; whoever decodes adds to it, and whoever reads a sample looks at the difference.
inline thread_local double decode_seconds = 0;

// Adds the time of its life.
class DecodeTimer {
 public:
  DecodeTimer() = default;
  ~DecodeTimer() { decode_seconds += stopwatch_.seconds(); }
  DecodeTimer(const DecodeTimer&) = delete;
  DecodeTimer& operator=(const DecodeTimer&) = delete;

 private:
  Stopwatch stopwatch_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_LOAD_TIMES_H_
