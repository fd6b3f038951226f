#ifndef DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_
#define DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_

#include "trainer/model/zoo/zoo.h"

// One a file.
namespace downpour::model {

ZooNetwork LeNet();
ZooNetwork Mlp();

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_
