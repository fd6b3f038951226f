#include "trainer/collective/nccl_library.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <climits>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

// From the public headers nccl.h of 2.28.9 and cuda_runtime_api.h of 13.0: what of their ABI is used. NCCL takes this
// layout of its settings in each version before and after it.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22809;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN and nullptr: as NCCL wants
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int n_channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};
static_assert(sizeof(Config) == 80);

struct UniqueId {
  char internal[128];
};
static_assert(sizeof(UniqueId) == sizeof(NcclUniqueId));

constexpr int kInt8 = 0, kFloat32 = 7, kBfloat16 = 9;  // ncclDataType_t
constexpr int kSum = 0;                                // ncclRedOp_t
constexpr int kErrorNotReady = 600;
constexpr unsigned int kStreamNonBlocking = 1;
constexpr unsigned int kEventDisableTiming = 2;
// Aborts of several threads are right since then.
constexpr int kOldestVersion = 21900;

// Results are ncclResult_t or cudaError_t, pointers of no type handles.
struct Functions {
  int (*get_version)(int*) = nullptr;
  const char* (*get_last_error)(void* comm) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*comm_init_rank_config)(void** comm, int size, UniqueId id, int rank, Config*) = nullptr;
  int (*comm_get_async_error)(void* comm, int* result) = nullptr;
  int (*comm_finalize)(void* comm) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
  int (*comm_abort)(void* comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int type, int operation, int root, void* comm, void* stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int type, int operation, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, void* comm, void* stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, void* comm, void* stream) = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;
  int (*receive)(void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;

  int (*set_device)(int) = nullptr;
  int (*device_get_pci_bus_id)(char* id, int size, int device) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  int (*cuda_get_last_error)() = nullptr;
  int (*stream_create)(void** stream, unsigned int flags) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*stream_query)(void* stream) = nullptr;
  int (*event_create)(void** event, unsigned int flags) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*malloc_async)(void** memory, std::size_t bytes, void* stream) = nullptr;
  int (*free_async)(void* memory, void* stream) = nullptr;
};

absl::Status Unusable(const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("NCCL cannot be used: ", why));
}

// One file and what was not found in it.
class Library {
 public:
  absl::Status Open(const std::string& file) {
    file_ = file;
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library_ != nullptr) return absl::OkStatus();
    const char* const error = dlerror();
    return Unusable(error != nullptr ? error : file);
  }

  template <typename Function>
  void Find(const char* name, Function* function) {
    void* const found = dlsym(library_, name);
    if (found == nullptr && missing_.empty()) missing_ = name;
    static_assert(std::is_pointer_v<Function> && sizeof(*function) == sizeof(found));
    std::memcpy(function, &found, sizeof(found));
  }

  absl::Status All() const {
    return missing_.empty() ? absl::OkStatus() : Unusable(absl::StrCat(file_, " has no ", missing_));
  }

 private:
  std::string file_;
  void* library_ = nullptr;
  std::string missing_;
};

absl::Status LoadNcclFunctions(const std::string& file, Functions* functions) {
  Library library;
  if (absl::Status status = library.Open(file); !status.ok()) return status;
  library.Find("ncclGetVersion", &functions->get_version);
  library.Find("ncclGetLastError", &functions->get_last_error);
  library.Find("ncclGetUniqueId", &functions->get_unique_id);
  library.Find("ncclCommInitRankConfig", &functions->comm_init_rank_config);
  library.Find("ncclCommGetAsyncError", &functions->comm_get_async_error);
  library.Find("ncclCommFinalize", &functions->comm_finalize);
  library.Find("ncclCommDestroy", &functions->comm_destroy);
  library.Find("ncclCommAbort", &functions->comm_abort);
  library.Find("ncclGroupStart", &functions->group_start);
  library.Find("ncclGroupEnd", &functions->group_end);
  library.Find("ncclReduce", &functions->reduce);
  library.Find("ncclReduceScatter", &functions->reduce_scatter);
  library.Find("ncclAllGather", &functions->all_gather);
  library.Find("ncclBroadcast", &functions->broadcast);
  library.Find("ncclSend", &functions->send);
  library.Find("ncclRecv", &functions->receive);
  if (absl::Status status = library.All(); !status.ok()) return status;
  int version = 0;
  if (functions->get_version(&version) != 0 || version < kOldestVersion) {
    return Unusable(
        absl::StrCat(file, " is version ", version, ", and ", kOldestVersion, " is the oldest that is right"));
  }
  return absl::OkStatus();
}

absl::Status LoadCudaFunctions(const std::string& file, Functions* functions) {
  Library library;
  if (absl::Status status = library.Open(file); !status.ok()) return status;
  library.Find("cudaSetDevice", &functions->set_device);
  library.Find("cudaDeviceGetPCIBusId", &functions->device_get_pci_bus_id);
  library.Find("cudaGetErrorString", &functions->get_error_string);
  library.Find("cudaGetLastError", &functions->cuda_get_last_error);
  library.Find("cudaStreamCreateWithFlags", &functions->stream_create);
  library.Find("cudaStreamDestroy", &functions->stream_destroy);
  library.Find("cudaStreamQuery", &functions->stream_query);
  library.Find("cudaEventCreateWithFlags", &functions->event_create);
  library.Find("cudaEventDestroy", &functions->event_destroy);
  library.Find("cudaEventRecord", &functions->event_record);
  library.Find("cudaEventQuery", &functions->event_query);
  library.Find("cudaMallocAsync", &functions->malloc_async);
  library.Find("cudaFreeAsync", &functions->free_async);
  return library.All();
}

// What CUDA said last on this thread; 0: NCCL was the last that failed.
thread_local int last_cuda_error = 0;

template <typename Handle>
void* Pointer(Handle handle) {
  return std::bit_cast<void*>(handle);
}
template <typename Handle>
Handle HandleOf(void* pointer) {
  return std::bit_cast<Handle>(pointer);
}

int TypeOf(NcclElement element) { return element == NcclElement::kFloat32 ? kFloat32 : kBfloat16; }

class NcclLibrary : public NcclApi {
 public:
  NcclLibrary(const NcclLibraryOptions& options, const Functions& functions) : options_(options), call_(functions) {}

  NcclResult UseDevice() override { return Cuda(call_.set_device(options_.device)); }
  NcclResult Address(std::string* address) override {
    std::array<char, 32> id = {};
    const NcclResult result = Cuda(call_.device_get_pci_bus_id(id.data(), id.size() - 1, options_.device));
    *address = id.data();
    return result;
  }
  std::string LastError() override {
    const char* const text =
        last_cuda_error != 0 ? call_.get_error_string(last_cuda_error) : call_.get_last_error(nullptr);
    return text == nullptr ? "" : text;
  }

  NcclResult GetUniqueId(NcclUniqueId* id) override {
    UniqueId made = {};
    const NcclResult result = Nccl(call_.get_unique_id(&made));
    std::memcpy(id->data(), made.internal, id->size());
    return result;
  }
  NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank) override {
    UniqueId given = {};
    std::memcpy(given.internal, id.data(), id.size());
    Config config;
    void* made = nullptr;
    const NcclResult result = Nccl(call_.comm_init_rank_config(&made, size, given, rank, &config));
    *comm = HandleOf<NcclComm>(made);
    return result;
  }
  NcclResult AsyncError(NcclComm comm) override {
    int state = 0;
    const int result = call_.comm_get_async_error(Pointer(comm), &state);
    return Nccl(result != 0 ? result : state);
  }
  NcclResult CommFinalize(NcclComm comm) override { return Nccl(call_.comm_finalize(Pointer(comm))); }
  NcclResult CommDestroy(NcclComm comm) override { return Nccl(call_.comm_destroy(Pointer(comm))); }
  NcclResult CommAbort(NcclComm comm) override { return Nccl(call_.comm_abort(Pointer(comm))); }

  NcclResult GroupStart() override { return Nccl(call_.group_start()); }
  NcclResult GroupEnd() override { return Nccl(call_.group_end()); }
  NcclResult Reduce(const void* from, void* to, std::size_t count, NcclElement element, int root, NcclComm comm,
                    NcclStream stream) override {
    return Nccl(call_.reduce(from, to, count, TypeOf(element), kSum, root, Pointer(comm), Pointer(stream)));
  }
  NcclResult ReduceScatter(const void* from, void* to, std::size_t count, NcclElement element, NcclComm comm,
                           NcclStream stream) override {
    return Nccl(call_.reduce_scatter(from, to, count, TypeOf(element), kSum, Pointer(comm), Pointer(stream)));
  }
  NcclResult AllGather(const void* from, void* to, std::size_t bytes, NcclComm comm, NcclStream stream) override {
    return Nccl(call_.all_gather(from, to, bytes, kInt8, Pointer(comm), Pointer(stream)));
  }
  NcclResult Broadcast(void* values, std::size_t bytes, int root, NcclComm comm, NcclStream stream) override {
    return Nccl(call_.broadcast(values, values, bytes, kInt8, root, Pointer(comm), Pointer(stream)));
  }
  NcclResult Send(const void* from, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) override {
    return Nccl(call_.send(from, bytes, kInt8, peer, Pointer(comm), Pointer(stream)));
  }
  NcclResult Receive(void* to, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) override {
    return Nccl(call_.receive(to, bytes, kInt8, peer, Pointer(comm), Pointer(stream)));
  }

  NcclResult StreamCreate(NcclStream* stream) override {
    void* made = nullptr;
    const NcclResult result = Cuda(call_.stream_create(&made, kStreamNonBlocking));
    *stream = HandleOf<NcclStream>(made);
    return result;
  }
  NcclResult StreamDestroy(NcclStream stream) override { return Cuda(call_.stream_destroy(Pointer(stream))); }
  NcclResult StreamQuery(NcclStream stream) override { return Query(call_.stream_query(Pointer(stream))); }
  NcclResult EventCreate(NcclEvent* event) override {
    void* made = nullptr;
    const NcclResult result = Cuda(call_.event_create(&made, kEventDisableTiming));
    *event = HandleOf<NcclEvent>(made);
    return result;
  }
  NcclResult EventDestroy(NcclEvent event) override { return Cuda(call_.event_destroy(Pointer(event))); }
  NcclResult EventRecord(NcclEvent event, NcclStream stream) override {
    return Cuda(call_.event_record(Pointer(event), Pointer(stream)));
  }
  NcclResult EventQuery(NcclEvent event) override { return Query(call_.event_query(Pointer(event))); }

  NcclResult Allocate(void** memory, std::size_t bytes, NcclStream stream) override {
    return Cuda(call_.malloc_async(memory, bytes, Pointer(stream)));
  }
  NcclResult Free(void* memory, NcclStream stream) override { return Cuda(call_.free_async(memory, Pointer(stream))); }
  bool Rounds() const override { return options_.round != nullptr && options_.widen != nullptr; }
  NcclResult Round(const float* from, void* to, std::size_t count, NcclStream stream) override {
    return Cuda(options_.round(from, to, count, Pointer(stream)));
  }
  NcclResult Widen(const void* from, float* to, std::size_t count, NcclStream stream) override {
    return Cuda(options_.widen(from, to, count, Pointer(stream)));
  }

 private:
  static NcclResult Nccl(int result) {
    last_cuda_error = 0;
    return static_cast<NcclResult>(result);
  }
  static NcclResult Cuda(int error) {
    last_cuda_error = error;
    return error == 0 ? NcclResult::kSuccess : NcclResult::kUnhandledCudaError;
  }
  NcclResult Query(int error) const {
    if (error != kErrorNotReady) return Cuda(error);
    // Else the next launch of a kernel on this thread would be taken for failed.
    call_.cuda_get_last_error();
    return NcclResult::kInProgress;
  }

  const NcclLibraryOptions options_;
  const Functions call_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const NcclLibraryOptions& options) {
  Functions functions;
  if (absl::Status status = LoadCudaFunctions(options.cuda, &functions); !status.ok()) return status;
  if (absl::Status status = LoadNcclFunctions(options.nccl, &functions); !status.ok()) return status;
  return std::make_unique<NcclLibrary>(options, functions);
}

}  // namespace downpour::collective
