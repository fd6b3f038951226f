#ifndef DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_
#define DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_

#include "trainer/model/zoo/zoo.h"

// The entries of the zoo, each in a file of its own. Internal to the zoo.
namespace downpour::model::zoo {

ZooNetwork Acoustic();
ZooNetwork AlexNet();
ZooNetwork BiLstm();
ZooNetwork CifarCnn();
ZooNetwork LeNet();
ZooNetwork LocallyConnected();
ZooNetwork Mlp();
ZooNetwork PhotoCnn();
ZooNetwork ResNet18();
ZooNetwork TextTransformer();
ZooNetwork UNet();

}  // namespace downpour::model::zoo

#endif  // DOWNPOUR_TRAINER_MODEL_ZOO_NETWORKS_H_
