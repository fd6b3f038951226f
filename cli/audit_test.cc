#include "cli/audit.h"

#include <set>

#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

TEST(AuditedServersTest, ThoseThatHoldSlicesWhoeverElseIsOrIsNotThere) {
  api::TrainingJobSpec spec;
  spec.parameter_server.emplace().replicas = 3;
  api::TrainingJobStatus status;
  EXPECT_EQ(AuditedServers(spec, status, {0, 1}), (std::set<int>{0, 1, 2})) << "one may be on its way";
  EXPECT_EQ(AuditedServers(spec, status, {0, 1, 2, 3}), (std::set<int>{0, 1, 2, 3})) << "one may hold something still";
  status.slices.emplace();
  EXPECT_EQ(AuditedServers(spec, status, {0, 1}), (std::set<int>{0, 1, 2})) << "nothing is known yet";
  // ps-0 died, others took over what it held, and the job was over before it was replaced.
  status.slices->parameter_servers = {1, 2};
  EXPECT_EQ(AuditedServers(spec, status, {1, 2}), (std::set<int>{1, 2}));
  status.slices->parameter_servers = {1, 2, 3};
  EXPECT_EQ(AuditedServers(spec, status, {0, 1, 2, 3, 4}), (std::set<int>{1, 2, 3}));
}

TEST(AuditedServersTest, OfAJobWithoutThemTheWorkersThatRun) {
  api::TrainingJobSpec spec;
  spec.strategy = api::Strategy::kAllReduce;
  spec.worker.replicas = 3;
  EXPECT_EQ(LedgerRole(spec), api::Role::kWorker);
  EXPECT_EQ(AuditedServers(spec, {}, {0, 2}), (std::set<int>{0, 2}));
  EXPECT_EQ(LedgerRole(api::TrainingJobSpec()), api::Role::kParameterServer);
}

}  // namespace
}  // namespace downpour::cli
