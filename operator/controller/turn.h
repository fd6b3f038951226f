#ifndef DOWNPOUR_OPERATOR_CONTROLLER_TURN_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_TURN_H_

#include <string>

namespace downpour::controller {

// Where many jobs do something again and again, each has a moment of its own within the period they share: those that
// started together do not act together for ever. As good as random, the same each time for one job. In [0, 1).
double Phase(const std::string& job_uid);

// When a job that had its last turn at `last` has the next: at its own moment, not before half a period (seconds, > 0)
// has passed and before one and a half have.
double NextTurn(const std::string& job_uid, double period, double last);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_TURN_H_
