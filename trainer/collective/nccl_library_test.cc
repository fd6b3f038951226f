// The loader, over a library that stands for NCCL and CUDA and writes down what it is given.
#include "trainer/collective/nccl_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace downpour::collective {
namespace {

using testing::HasSubstr;

NcclLibraryOptions Stub() {
  NcclLibraryOptions options;
  options.nccl = DOWNPOUR_NCCL_STUB;
  options.cuda = DOWNPOUR_NCCL_STUB;
  options.device = 3;
  return options;
}

std::string Said() {
  void* const found = dlsym(dlopen(DOWNPOUR_NCCL_STUB, RTLD_NOW | RTLD_NOLOAD), "StubSaid");
  const char* (*said)() = nullptr;
  std::memcpy(&said, &found, sizeof(found));
  return said();
}

void ExpectUnusable(const NcclLibraryOptions& options, const std::string& why) {
  const absl::Status status = LoadNccl(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith("NCCL cannot be used: "));
  EXPECT_THAT(message, HasSubstr(why));
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
}

TEST(NcclLibraryTest, SaysInOneLineWhyItCannotBeLoaded) {
  NcclLibraryOptions options = Stub();
  options.nccl = "/nowhere/libnccl.so.2";
  ExpectUnusable(options, "/nowhere/libnccl.so.2: cannot open shared object file");
  options.nccl = "libc.so.6";
  ExpectUnusable(options, "libc.so.6 has no ncclGetVersion");
  options = Stub();
  options.cuda = "/nowhere/libcudart.so.13";
  ExpectUnusable(options, "/nowhere/libcudart.so.13: cannot open shared object file");
  options.cuda = "libc.so.6";
  ExpectUnusable(options, "libc.so.6 has no cudaSetDevice");
  setenv("DOWNPOUR_NCCL_STUB_VERSION", "21805", 1);
  ExpectUnusable(Stub(), "is version 21805, and 21900 is the oldest that is right");
  unsetenv("DOWNPOUR_NCCL_STUB_VERSION");
  EXPECT_TRUE(LoadNccl(Stub()).ok());
}

TEST(NcclLibraryTest, GivesTheLibrariesWhatTheirHeadersSay) {
  const auto api = LoadNccl(Stub()).value();
  EXPECT_EQ(api->UseDevice(), NcclResult::kSuccess);
  EXPECT_EQ(Said(), "device 3");
  std::string address;
  EXPECT_EQ(api->Address(&address), NcclResult::kSuccess);
  EXPECT_EQ(Said(), "address of 3");
  EXPECT_EQ(address, "0000:03:00.0");
  NcclUniqueId id = {};
  EXPECT_EQ(api->GetUniqueId(&id), NcclResult::kSuccess);
  EXPECT_EQ(id[127], 127);
  NcclComm comm = NcclComm::kNone;
  EXPECT_EQ(api->CommInitRank(&comm, 4, id, 2), NcclResult::kInProgress);
  EXPECT_EQ(Said(), "init size 4 id 127 rank 2 magic cafebeef version 22809 blocking 0 last -2147483648");
  EXPECT_EQ(api->AsyncError(comm), NcclResult::kRemoteError);
  EXPECT_EQ(Said(), "async error 11");
  EXPECT_EQ(api->LastError(), "what NCCL says");
  NcclStream stream = NcclStream::kNone;
  EXPECT_EQ(api->StreamCreate(&stream), NcclResult::kSuccess);
  EXPECT_EQ(Said(), "stream 1");
  void* const from = reinterpret_cast<void*>(21);
  void* const to = reinterpret_cast<void*>(22);
  api->GroupStart();
  EXPECT_EQ(Said(), "group start");
  api->Reduce(from, to, 5, NcclElement::kFloat32, 1, comm, stream);
  EXPECT_EQ(Said(), "reduce 21 22 5 7 0 1 11 12");
  api->Reduce(from, to, 5, NcclElement::kBfloat16, 1, comm, stream);
  EXPECT_EQ(Said(), "reduce 21 22 5 9 0 1 11 12");
  api->GroupEnd();
  EXPECT_EQ(Said(), "group end");
  api->ReduceScatter(from, to, 5, NcclElement::kFloat32, comm, stream);
  EXPECT_EQ(Said(), "reduce-scatter 21 22 5 7 0 11 12");
  api->AllGather(from, to, 5, comm, stream);
  EXPECT_EQ(Said(), "all-gather 21 22 5 0 11 12");
  api->Broadcast(to, 5, 1, comm, stream);
  EXPECT_EQ(Said(), "broadcast 22 22 5 0 1 11 12");
  api->Send(from, 5, 1, comm, stream);
  EXPECT_EQ(Said(), "send 21 5 0 1 11 12");
  api->Receive(to, 5, 1, comm, stream);
  EXPECT_EQ(Said(), "receive 22 5 0 1 11 12");
  EXPECT_EQ(api->StreamQuery(stream), NcclResult::kInProgress);
  EXPECT_EQ(Said(), "last error") << "or the next kernel of this thread seems to fail";
  NcclEvent event = NcclEvent::kNone;
  api->EventCreate(&event);
  EXPECT_EQ(Said(), "event 2");
  api->EventRecord(event, stream);
  EXPECT_EQ(Said(), "record 13 12");
  EXPECT_EQ(api->EventQuery(event), NcclResult::kSuccess);
  EXPECT_EQ(Said(), "event query 13");
  api->EventDestroy(event);
  EXPECT_EQ(Said(), "event destroy 13");
  void* memory = nullptr;
  api->Allocate(&memory, 5, stream);
  EXPECT_EQ(Said(), "malloc 5 12");
  api->Free(memory, stream);
  EXPECT_EQ(Said(), "free 14 12");
  api->StreamDestroy(stream);
  EXPECT_EQ(Said(), "stream destroy 12");
  api->CommFinalize(comm);
  EXPECT_EQ(Said(), "finalize 11");
  api->CommDestroy(comm);
  EXPECT_EQ(Said(), "destroy 11");
  api->CommAbort(comm);
  EXPECT_EQ(Said(), "abort 11");
}

TEST(NcclLibraryTest, ADeviceThatIsNotThere) {
  NcclLibraryOptions options = Stub();
  options.device = 99;
  const auto api = LoadNccl(options).value();
  EXPECT_EQ(api->UseDevice(), NcclResult::kUnhandledCudaError);
  EXPECT_EQ(api->LastError(), "invalid device ordinal");
}

TEST(NcclLibraryTest, RoundsWithKernelsOnly) {
  NcclLibraryOptions options = Stub();
  EXPECT_FALSE(LoadNccl(options).value()->Rounds());
  options.round = [](const float*, void*, std::size_t, void* stream) { return stream == nullptr ? 0 : 1; };
  EXPECT_FALSE(LoadNccl(options).value()->Rounds());
  options.widen = [](const void*, float*, std::size_t, void*) { return 2; };
  const auto api = LoadNccl(options).value();
  EXPECT_TRUE(api->Rounds());
  EXPECT_EQ(api->Round(nullptr, nullptr, 0, NcclStream::kNone), NcclResult::kSuccess);
  EXPECT_EQ(api->Widen(nullptr, nullptr, 0, NcclStream::kNone), NcclResult::kUnhandledCudaError);
}

}  // namespace
}  // namespace downpour::collective
