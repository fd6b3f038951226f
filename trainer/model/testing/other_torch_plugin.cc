// Built with another LibTorch, of which this one does not have every function.
#include "trainer/model/testing/contract.h"

extern "C" void a_function_of_another_libtorch();

extern "C" __attribute__((visibility("default"))) void call_it() { a_function_of_another_libtorch(); }

const ContractOfAnyVersion* downpour_plugin() {
  static const ContractOfAnyVersion contract{.torch_version = "1.13.1"};
  return &contract;
}
