// Of a later contract.
#include "trainer/model/testing/contract.h"

const ContractOfAnyVersion* downpour_plugin() {
  static const ContractOfAnyVersion contract{.abi_version = 1000};
  return &contract;
}
