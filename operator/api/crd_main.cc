// Prints the CustomResourceDefinition of TrainingJob.
#include <cstdio>
#include <string>

#include "operator/api/crd.h"

int main() {
  const std::string text = downpour::api::CustomResourceDefinitionYaml();
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}
