// Stands for libnccl.so.2 and libcudart.so.13 where their loader is tested: each function writes down what it was
// given.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

char said[256];

template <typename... Arguments>
int Say(const char* format, Arguments... arguments) {
  std::snprintf(said, sizeof(said), format, arguments...);
  return 0;
}

// Handles are small numbers here.
int Number(const void* handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)); }
void Give(void** handle, std::uintptr_t number) { *handle = reinterpret_cast<void*>(number); }

struct Id {
  char bytes[128];
};

}  // namespace

extern "C" {

const char* StubSaid() { return said; }

int ncclGetVersion(int* version) {
  const char* const chosen = std::getenv("DOWNPOUR_NCCL_STUB_VERSION");
  *version = chosen == nullptr ? 22809 : std::atoi(chosen);
  return 0;
}
const char* ncclGetLastError(void*) { return "what NCCL says"; }
int ncclGetUniqueId(Id* id) {
  for (int i = 0; i < 128; ++i) id->bytes[i] = static_cast<char>(i);
  return 0;
}
int ncclCommInitRankConfig(void** comm, int size, Id id, int rank, const char* config) {
  std::size_t bytes = 0;
  std::uint32_t magic = 0, version = 0;
  int blocking = -1, last = 0;
  std::memcpy(&bytes, config, 8);
  std::memcpy(&magic, config + 8, 4);
  std::memcpy(&version, config + 12, 4);
  std::memcpy(&blocking, config + 16, 4);
  std::memcpy(&last, config + bytes - 8, 4);
  Give(comm, 11);
  Say("init size %d id %d rank %d magic %x version %u blocking %d last %d", size, id.bytes[127], rank, magic, version,
      blocking, last);
  return 7;
}
int ncclCommGetAsyncError(void* comm, int* result) {
  *result = 6;
  return Say("async error %d", Number(comm));
}
int ncclCommFinalize(void* comm) { return Say("finalize %d", Number(comm)); }
int ncclCommDestroy(void* comm) { return Say("destroy %d", Number(comm)); }
int ncclCommAbort(void* comm) { return Say("abort %d", Number(comm)); }
int ncclGroupStart() { return Say("group start"); }
int ncclGroupEnd() { return Say("group end"); }
int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root, void* comm, void* at) {
  return Say("reduce %d %d %zu %d %d %d %d %d", Number(from), Number(to), count, type, operation, root, Number(comm),
             Number(at));
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation, void* comm, void* at) {
  return Say("reduce-scatter %d %d %zu %d %d %d %d", Number(from), Number(to), count, type, operation, Number(comm),
             Number(at));
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* comm, void* at) {
  return Say("all-gather %d %d %zu %d %d %d", Number(from), Number(to), count, type, Number(comm), Number(at));
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* comm, void* at) {
  return Say("broadcast %d %d %zu %d %d %d %d", Number(from), Number(to), count, type, root, Number(comm), Number(at));
}
int ncclSend(const void* from, std::size_t count, int type, int peer, void* comm, void* at) {
  return Say("send %d %zu %d %d %d %d", Number(from), count, type, peer, Number(comm), Number(at));
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* comm, void* at) {
  return Say("receive %d %zu %d %d %d %d", Number(to), count, type, peer, Number(comm), Number(at));
}

int cudaSetDevice(int device) { return Say("device %d", device) + (device == 99 ? 101 : 0); }
int cudaDeviceGetPCIBusId(char* id, int size, int device) {
  std::snprintf(id, static_cast<std::size_t>(size), "0000:0%d:00.0", device);
  return Say("address of %d", device);
}
const char* cudaGetErrorString(int error) { return error == 101 ? "invalid device ordinal" : "another error"; }
int cudaGetLastError() { return Say("last error"); }
int cudaStreamCreateWithFlags(void** stream, unsigned int flags) {
  Give(stream, 12);
  return Say("stream %u", flags);
}
int cudaStreamDestroy(void* stream) { return Say("stream destroy %d", Number(stream)); }
int cudaStreamQuery(void*) { return 600; }
int cudaEventCreateWithFlags(void** event, unsigned int flags) {
  Give(event, 13);
  return Say("event %u", flags);
}
int cudaEventDestroy(void* event) { return Say("event destroy %d", Number(event)); }
int cudaEventRecord(void* event, void* stream) { return Say("record %d %d", Number(event), Number(stream)); }
int cudaEventQuery(void* event) { return Say("event query %d", Number(event)); }
int cudaMallocAsync(void** memory, std::size_t bytes, void* stream) {
  Give(memory, 14);
  return Say("malloc %zu %d", bytes, Number(stream));
}
int cudaFreeAsync(void* memory, void* stream) { return Say("free %d %d", Number(memory), Number(stream)); }
}
