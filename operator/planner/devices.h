#ifndef DOWNPOUR_OPERATOR_PLANNER_DEVICES_H_
#define DOWNPOUR_OPERATOR_PLANNER_DEVICES_H_

#include "operator/planner/context.h"

// Of jobs whose workers ask for GPUs.
namespace downpour::planner {

// Follows GPUInUse: whether the workers compute on what their pods ask for, on as many GPUs each as they are to. With
// device Auto one that finds fewer that it can use, or none, goes on all the same. Does nothing for a job whose
// template asks for none, or that is to train on CPUs.
void UpdateDevices(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_DEVICES_H_
