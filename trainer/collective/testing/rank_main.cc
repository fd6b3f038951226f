// One member that does what the lines of its standard input say and answers a line each, for tests that kill it:
//   form VIEW RANK SIZE STORE SECONDS   formed CODE
//   start COUNT                         started CODE       an all-reduce of COUNT values of this rank + 1
//   wait SECONDS                        waited CODE FIRST  for that, and the first of its values
//   loop COUNT SECONDS                  round, round, ... ended CODE
//   time COUNT TIMES                    took SECONDS       the shortest of TIMES all-reduces
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/collective/tcp.h"

int main() {
  using namespace downpour::collective;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto member = NewTcpMember("127.0.0.1:0");
  if (!member.ok()) {
    std::cerr << member.status() << std::endl;
    return 1;
  }
  std::cout << "port " << (*member)->port() << std::endl;
  std::unique_ptr<Collective> group;
  std::vector<float> values;
  Handle handle = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    std::size_t count = 0;
    double seconds = 0;
    if (command == "form") {
      GroupOptions options;
      words >> options.view >> options.rank >> options.size >> options.store >> seconds;
      options.host = "127.0.0.1";
      options.limit = absl::Seconds(seconds);
      group.reset();
      auto formed = (*member)->Form(options);
      std::cout << "formed " << absl::StatusCodeToString(formed.status().code()) << std::endl;
      if (formed.ok()) group = *std::move(formed);
      continue;
    }
    if (group == nullptr) {
      std::cout << "no group" << std::endl;
      continue;
    }
    if (command == "start") {
      words >> count;
      values.assign(count, static_cast<float>(group->rank() + 1));
      const auto started = group->StartAllReduce(absl::MakeSpan(values));
      if (started.ok()) handle = *started;
      std::cout << "started " << absl::StatusCodeToString(started.status().code()) << std::endl;
    } else if (command == "wait") {
      words >> seconds;
      const absl::Status status = group->Wait(handle, absl::Seconds(seconds));
      std::cout << "waited " << absl::StatusCodeToString(status.code()) << " " << values.at(0) << std::endl;
    } else if (command == "loop") {
      words >> count >> seconds;
      absl::Status status;
      while (status.ok()) {
        values.assign(count, static_cast<float>(group->rank() + 1));
        status = group->AllReduce(absl::MakeSpan(values), absl::Seconds(seconds));
        if (status.ok()) std::cout << "round" << std::endl;
      }
      std::cerr << status << std::endl;
      std::cout << "ended " << absl::StatusCodeToString(status.code()) << std::endl;
    } else if (command == "time") {
      int times = 0;
      words >> count >> times;
      values.assign(count, 0.0f);
      auto shortest = std::chrono::duration<double>::max();
      for (int i = 0; i < times; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        if (absl::Status status = group->AllReduce(absl::MakeSpan(values), absl::Minutes(1)); !status.ok()) {
          std::cerr << status << std::endl;
          return 1;
        }
        shortest = std::min<std::chrono::duration<double>>(shortest, std::chrono::steady_clock::now() - begin);
      }
      std::cout << "took " << shortest.count() << std::endl;
    }
  }
  return 0;
}
