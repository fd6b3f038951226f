#include "tests/simulation/world.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace downpour::simulation {

bool World::Step() {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  ++steps_;
  event.action();
  return true;
}

void World::Trace(const std::string& text) const {
  if (trace_) std::printf("%10.4f  %s\n", absl::ToDoubleSeconds(now_), text.c_str());
}

void World::Violation(std::string text) {
  Trace(absl::StrCat("VIOLATION ", text));
  if (violations_.size() < 10) violations_.push_back(std::move(text));
}

}  // namespace downpour::simulation
