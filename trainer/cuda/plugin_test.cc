#include "trainer/cuda/plugin.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TestPlugin(const std::string& name) { return absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/", name, ".so"); }

// One line that names the file.
void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& because) {
  const absl::StatusOr<const PluginTable*> table = LoadPlugin(path);
  EXPECT_EQ(table.status().code(), code) << table.status();
  EXPECT_THAT(table.status().message(), HasSubstr(path));
  EXPECT_THAT(table.status().message(), HasSubstr(because));
  EXPECT_THAT(table.status().message(), Not(HasSubstr("\n")));
}

TEST(PluginTest, RefusesWhatIsNotThere) {
  ExpectRefused(TestPlugin("missing"), absl::StatusCode::kNotFound, "there is no file");
  // Not looked for among the system's libraries.
  ExpectRefused("libc.so.6", absl::StatusCode::kNotFound, "there is no file");
}

TEST(PluginTest, RefusesWhatIsNoLibrary) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/no_library.so");
  std::ofstream(path) << "text";
  ExpectRefused(path, absl::StatusCode::kFailedPrecondition, "cannot be loaded");
  std::filesystem::remove(path);
}

TEST(PluginTest, RefusesAnotherLibrary) {
  ExpectRefused(TestPlugin("no_symbol"), absl::StatusCode::kFailedPrecondition, "it has no symbol downpour_cuda_table");
  ExpectRefused(TestPlugin("no_table"), absl::StatusCode::kFailedPrecondition, "gives no table");
}

TEST(PluginTest, RefusesAnotherVersion) {
  ExpectRefused(TestPlugin("other_version"), absl::StatusCode::kFailedPrecondition,
                absl::StrCat("version ", kPluginVersion + 1));
  ExpectRefused(TestPlugin("other_size"), absl::StatusCode::kFailedPrecondition,
                absl::StrCat("a table of ", sizeof(PluginTable) - 8, " bytes"));
}

TEST(PluginTest, LoadsWhatFits) {
  const absl::StatusOr<const PluginTable*> table = LoadPlugin(TestPlugin("no_device"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(*LoadPlugin(TestPlugin("no_device")), *table);
}

TEST(PluginTest, SaysWhyThereIsNoDevice) {
  const absl::StatusOr<const PluginTable*> table = LoadPlugin(TestPlugin("no_device"));
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::Status status = CheckDevices(**table);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "no CUDA device can be used: the driver is too old");
  EXPECT_EQ(MakePluginKernels(**table, 0, nullptr).status(), status);
}

TEST(PluginTest, IsWhereTheEnvironmentSaysOrBesideTheProgram) {
  const char* const before = std::getenv("DOWNPOUR_CUDA_PLUGIN");
  const std::string kept = before == nullptr ? "" : before;
  setenv("DOWNPOUR_CUDA_PLUGIN", "/somewhere/kernels.so", 1);
  EXPECT_EQ(PluginPath(), "/somewhere/kernels.so");
  unsetenv("DOWNPOUR_CUDA_PLUGIN");
  // There is none beside the tests.
  EXPECT_THAT(PluginPath(), EndsWith("/lib/libdownpour_cuda.so"));
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libdownpour_cuda.so";
  std::ofstream(beside.string()) << "text";
  EXPECT_EQ(PluginPath(), beside.string());
  std::filesystem::remove(beside);
  if (before != nullptr) setenv("DOWNPOUR_CUDA_PLUGIN", kept.c_str(), 1);
}

#if defined(DOWNPOUR_BUILT_CUDA_PLUGIN)
// The library itself, which needs no driver to be loaded.
TEST(PluginTest, LoadsTheKernelsOnEveryMachine) {
  const absl::StatusOr<const PluginTable*> table = LoadPlugin(DOWNPOUR_BUILT_CUDA_PLUGIN);
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::Status devices = CheckDevices(**table);
  if (!devices.ok()) {
    EXPECT_THAT(devices.message(), HasSubstr("no CUDA device can be used: "));
  }
}
#endif

}  // namespace
}  // namespace downpour::cuda
