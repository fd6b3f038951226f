#ifndef DOWNPOUR_OPERATOR_CONTROLLER_TESTING_JOB_ON_SERVER_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_TESTING_JOB_ON_SERVER_H_

#include <memory>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "operator/controller/job_record.h"
#include "operator/controller/testing/pods.h"
#include "operator/kube/client.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/training_job.h"

namespace downpour::controller {

// A client of an API server that holds the job "lenet" of one ps and two workers.
class JobOnServer : public ::testing::Test {
 protected:
  JobOnServer()
      : client_(kube::MakeHttpTransport(std::make_shared<kube::PlainCredentials>(server_.Start())),
                {absl::Seconds(10), 10000, 10000}),
        record_(PutJob()) {
    server_.SetGracefulPods(true);
  }

  // The job with `more` in its spec, as a cache holds it.
  JobRecord PutJob(const kube::Json& more = kube::Json::object()) {
    kube::Json job = TrainingJobObject(kNamespace, "lenet", 1, 2);
    job["spec"].merge_patch(more);
    return *DecodeJob(server_.Put(kube::kTrainingJobs, std::move(job)));
  }

  kube::FakeApiServer server_;
  kube::Client client_;
  const JobRecord record_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_TESTING_JOB_ON_SERVER_H_
