// A client or a server of the transport over shared memory, in a process of its own, for local_process_test.
//   local_peer server DIRECTORY ADDRESS   sends back what comes
//   local_peer client DIRECTORY ADDRESS   exchanges as fast as it can, and looks at what comes back
// Says "ready" once it serves, or was served. Ends with its standard input.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trainer/wire/shared_memory_transport.h"
#include "trainer/wire/testing/event.h"
#include "trainer/wire/testing/process_frames.h"

namespace downpour::wire {
namespace {

void Ready() {
  std::puts("ready");
  std::fflush(stdout);
}

void WaitForTheEnd() {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

int Serve(const std::string& directory, const std::string& address) {
  SharedMemoryServerOptions options;
  options.directory = directory;
  options.job_uid = kProcessJob;
  options.address = address;
  const auto server = SharedMemoryServer::Start(options, [](Frames request, const std::function<void(Frames)>& reply) {
    for (core::Frame& frame : request) {
      if (!IsNumbered(frame)) std::_Exit(2);
      frame.header.kind = core::FrameKind::kReply;
      frame.header.status = core::ReplyStatus::kApplied;
    }
    reply(std::move(request));
  });
  if (!server.ok()) return 1;
  Ready();
  WaitForTheEnd();
  return 0;
}

int Exchange(const std::string& directory, const std::string& address) {
  SharedMemoryClientOptions options;
  options.directory = directory;
  options.job_uid = kProcessJob;
  const auto client = *MakeSharedMemoryDataClient(options);
  std::atomic<bool> over{false};
  std::atomic<bool> served{false};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; !over; ++i) {
        Event ended;
        client->Exchange(address, {NumberedFrame(4 * i + thread)}, absl::Seconds(30),
                         [&](const absl::StatusOr<Frames>& reply) {
                           if (reply.ok() && !IsNumbered(reply->front())) std::_Exit(2);
                           if (reply.ok() && !served.exchange(true)) Ready();
                           ended.Notify();
                         });
        ended.WaitFor(absl::Hours(1));
      }
    });
  }
  WaitForTheEnd();
  over = true;
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace downpour::wire

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  const std::string role = argv[1];
  return role == "server" ? downpour::wire::Serve(argv[2], argv[3]) : downpour::wire::Exchange(argv[2], argv[3]);
}
