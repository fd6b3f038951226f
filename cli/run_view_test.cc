#include "cli/run_view.h"

#include <fcntl.h>
#include <stdlib.h>

#include "cli/files.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

TEST(RunViewTest, ATerminalThatCannotBePaintedOnGetsLinesWithoutEscapes) {
  const FileDescriptor controller(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(controller.valid());
  ASSERT_EQ(grantpt(controller.get()), 0);
  ASSERT_EQ(unlockpt(controller.get()), 0);
  const FileDescriptor terminal(open(ptsname(controller.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.valid());
  unsetenv("NO_COLOR");
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(IsPaintable(terminal.get()));
  EXPECT_TRUE(WantsColour(terminal.get()));
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(IsPaintable(terminal.get()));
  EXPECT_FALSE(WantsColour(terminal.get()));
  unsetenv("NO_COLOR");
  for (const char* kind : {"dumb", ""}) {
    setenv("TERM", kind, 1);
    EXPECT_FALSE(IsPaintable(terminal.get())) << kind;
    EXPECT_FALSE(WantsColour(terminal.get())) << kind;
  }
  unsetenv("TERM");
  EXPECT_FALSE(IsPaintable(terminal.get()));
  setenv("TERM", "xterm", 1);
  const FileDescriptor none(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(IsPaintable(none.get()));
}

}  // namespace
}  // namespace downpour::cli
