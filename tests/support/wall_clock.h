#ifndef DOWNPOUR_TESTS_SUPPORT_WALL_CLOCK_H_
#define DOWNPOUR_TESTS_SUPPORT_WALL_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace downpour::testing {

// Linking this puts the process's wall clock in the hands of its test, for all libraries: what asks for the time, and
// waits on a futex for a moment of it. The monotonic clock stays what it is.
//
// The same as a library to be preloaded (downpour_wall_clock) takes how far the clock is ahead, as nanoseconds in eight
// bytes, from the file that DOWNPOUR_WALL_CLOCK names: for whole processes, which may share the file.

// How far it is ahead of the machine's; negative: behind.
void SetWallClock(std::chrono::nanoseconds ahead);

// How many waits with a time-out threads of this process have begun.
std::uint64_t TimedWaits();
// Once there were more than so many of them.
void SetWallClockAfter(std::uint64_t timed_waits, std::chrono::nanoseconds ahead);

}  // namespace downpour::testing

#endif  // DOWNPOUR_TESTS_SUPPORT_WALL_CLOCK_H_
