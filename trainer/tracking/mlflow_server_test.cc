// The tracker against a whole MLflow server (DOWNPOUR_MLFLOW_PYTHON: a Python that has mlflow), on a loopback socket,
// with a database in a folder of its own. Skipped without.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "trainer/tracking/mlflow.h"

namespace downpour::tracking {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);

// One that nobody listened on a moment ago; 0: none.
int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(listener);
  return bound ? ntohs(address.sin_port) : 0;
}

// It ends with the test, and so do the processes that it starts: they are its group.
class Server {
 public:
  explicit Server(const std::string& python) : port_(FreePort()) {
    std::string pattern = absl::StrCat(testing::TempDir(), "mlflow_server_test.XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    const std::string port = absl::StrCat(port_);
    const std::string database = absl::StrCat("sqlite:///", folder_, "/mlflow.db");
    const std::string artifacts = folder_ + "/artifacts";
    const char* const arguments[] = {python.c_str(),
                                     "-m",
                                     "mlflow",
                                     "server",
                                     "--host",
                                     "127.0.0.1",
                                     "--port",
                                     port.c_str(),
                                     "--workers",
                                     "1",
                                     "--backend-store-uri",
                                     database.c_str(),
                                     "--default-artifact-root",
                                     artifacts.c_str(),
                                     nullptr};
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      const int output = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
      execv(arguments[0], const_cast<char* const*>(arguments));
      _exit(127);
    }
  }
  ~Server() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string uri() const { return absl::StrCat("http://127.0.0.1:", port_); }
  const std::string& folder() const { return folder_; }
  std::string Log() const {
    std::ifstream file(folder_ + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const int port_;
  std::string folder_;
  pid_t pid_ = 0;
};

Point LossAt(std::int64_t step, double loss) {
  Point point;
  point.step = step;
  point.time = 1700000000.25 + static_cast<double>(step);
  point.scalars.push_back({"train/loss", loss});
  point.texts.push_back({"phase", absl::StrCat("at ", step)});
  return point;
}

TEST(MlflowServerTest, ARunIsRecordedAndGoesOnAfterARestart) {
  const char* const python = std::getenv("DOWNPOUR_MLFLOW_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "DOWNPOUR_MLFLOW_PYTHON is not set";
  for (const char* const variable : {"no_proxy", "NO_PROXY"}) setenv(variable, "127.0.0.1", 1);
  const Server server(python);
  const auto make = [&server] {
    MlflowOptions options;
    options.uri = server.uri();
    options.experiment = "digits & more";
    options.run_name = "a run";
    return *MakeMlflowTracker(options);
  };
  tracking::Run run;
  run.job_name = "job";
  run.job_uid = "0123456789abcdef0123456789abcdef";
  run.configuration = "{}";
  run.hyperparameters = {{"optimizer.learningRate", "0.1"}, {"model.layers", std::string(3000, 'x')}};
  run.time = 1700000000;

  auto first = make();
  absl::Status begun = absl::UnavailableError("");
  for (int attempt = 0; attempt < 600 && absl::IsUnavailable(begun); ++attempt) {
    if (attempt > 0) absl::SleepFor(absl::Milliseconds(200));
    begun = first->Begin(run, kLimit);
  }
  ASSERT_EQ(begun, absl::OkStatus()) << server.Log();
  std::vector<Point> points = {LossAt(1, 1), LossAt(2, std::numeric_limits<double>::quiet_NaN()),
                               LossAt(3, std::numeric_limits<double>::infinity())};
  for (int step = 4; step <= 1500; ++step) points.push_back(LossAt(step, 0.5));
  ASSERT_EQ(first->Write(points, kLimit), absl::OkStatus()) << server.Log();
  ASSERT_EQ(first->Write(points, kLimit), absl::OkStatus()) << "as after an answer that was lost";
  ASSERT_EQ(first->End(Outcome::kStopped, 1700000100, kLimit), absl::OkStatus());

  run.hyperparameters[0].second = "0.2";
  run.hyperparameters.emplace_back("batchSize", "64");
  auto second = make();
  ASSERT_EQ(second->Begin(run, kLimit), absl::OkStatus()) << server.Log();
  ASSERT_EQ(second->Write({LossAt(1501, 0.25)}, kLimit), absl::OkStatus());
  ASSERT_EQ(second->End(Outcome::kSucceeded, 1700000200, kLimit), absl::OkStatus());

  std::ofstream(server.folder() + "/check.py") << R"(import math, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("digits & more")
(run,) = client.search_runs([experiment.experiment_id])
assert run.info.run_name == "a run" and run.info.status == "FINISHED", run.info
assert (run.info.start_time, run.info.end_time) == (1700000000000, 1700000200000), run.info
assert run.data.params["optimizer.learningRate"] == "0.1" and run.data.params["batchSize"] == "64", run.data.params
assert run.data.params["model.layers"] == "x" * 500
assert run.data.tags["downpour.phase"] == "at 1501" and run.data.tags["downpour.job"] == "job", run.data.tags
history = sorted(client.get_metric_history(run.info.run_id, "train/loss"), key=lambda metric: metric.step)
assert [metric.step for metric in history] == list(range(1, 1502)), len(history)
assert history[0].value == 1 and history[0].timestamp == 1700000001250 and history[-1].value == 0.25
assert math.isnan(history[1].value) and history[2].value > 1e300, history[:3]
)";
  const std::string command = absl::StrCat("'", python, "' '", server.folder(), "/check.py' ", server.uri());
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace downpour::tracking
