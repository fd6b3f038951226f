#include "trainer/worker/gpu_report.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// The same four lines on every machine, whatever it has.
TEST(GpuReportTest, HasALineForEachPart) {
  setenv("DOWNPOUR_CUDA_PLUGIN", "/nowhere/kernels.so", 1);
  std::string text;
  const bool usable = FindGpus(&text);
  EXPECT_THAT(text, MatchesRegex("device:  [^\n]+\nkernels: [^\n]+\nNCCL:    [^\n]+\nfigures: [^\n]+\n"));
  EXPECT_THAT(text, HasSubstr("kernels: no library of kernels for GPUs: there is no file /nowhere/kernels.so\n"));
  EXPECT_EQ(usable, text.find("device:  LibTorch can use CUDA device 0\n") == 0) << text;
}

}  // namespace
}  // namespace downpour::worker
