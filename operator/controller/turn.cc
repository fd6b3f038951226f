#include "operator/controller/turn.h"

#include <cmath>
#include <functional>

namespace downpour::controller {

double Phase(const std::string& job_uid) {
  return static_cast<double>(std::hash<std::string>()(job_uid) % 1024) / 1024;
}

double NextTurn(const std::string& job_uid, double period, double last) {
  const double phase = Phase(job_uid) * period;
  return phase + period * std::ceil((last + period / 2 - phase) / period);
}

}  // namespace downpour::controller
