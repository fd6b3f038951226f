#ifndef DOWNPOUR_TRAINER_MODEL_TESTING_CONTRACT_H_
#define DOWNPOUR_TRAINER_MODEL_TESTING_CONTRACT_H_

#include <cstdint>

// What the contract of every version begins with, written down once more: a change of downpour/plugin.h that breaks it
// fails the tests.
struct ContractOfAnyVersion {
  std::uint64_t magic = 0x6e6f6f7072756f44;
  std::uint32_t abi_version = 1;
  std::uint32_t cxx11_abi = 1;
  const char* torch_version = "2.11.0";
  const void* registry = nullptr;
};

extern "C" __attribute__((visibility("default"))) const ContractOfAnyVersion* downpour_plugin();

#endif  // DOWNPOUR_TRAINER_MODEL_TESTING_CONTRACT_H_
