#include "trainer/model/work_thread.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace downpour::model {
namespace {

TEST(WorkThreadTest, DoesOneThingAfterAnotherOnOneThread) {
  std::vector<std::thread::id> ids;
  {
    WorkThread thread;
    thread.Wait();
    for (int i = 0; i < 3; ++i) {
      thread.Start([&ids] { ids.push_back(std::this_thread::get_id()); });
      if (i < 2) thread.Wait();
    }
  }
  ASSERT_EQ(ids.size(), 3u) << "the end waits";
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

}  // namespace
}  // namespace downpour::model
