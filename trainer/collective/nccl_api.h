#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_API_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_API_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

// What is used of NCCL and of CUDA, of one device. No header of either is seen here, and a fake can take their place.
//
// Pointers to values are addresses of the device's memory: nothing on the host reads or writes there.
//
// No call waits for another rank. A call that returned kInProgress goes on by itself, and AsyncError says when it is
// over; until then the communicator and the stream it was given are left alone, but for AsyncError and CommAbort. That
// is only for the calls on a communicator: any other that does not return kSuccess has failed.
//
// Handles are of the device that made them, and are given back exactly once, by a call that is over for good with
// whatever it returns. One thread at a time uses a communicator, and each thread calls UseDevice first.
namespace downpour::collective {

// The numbers of ncclResult_t. Of CUDA's results kInProgress stands for cudaErrorNotReady.
enum class NcclResult : std::int8_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// What is added up; all else is bytes that move.
enum class NcclElement : std::uint8_t { kFloat32, kBfloat16 };
constexpr std::size_t WidthOf(NcclElement element) { return element == NcclElement::kFloat32 ? 4 : 2; }

enum class NcclComm : std::uintptr_t { kNone = 0 };
enum class NcclStream : std::uintptr_t { kNone = 0 };
enum class NcclEvent : std::uintptr_t { kNone = 0 };
using NcclUniqueId = std::array<char, 128>;

class NcclApi {
 public:
  NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;
  virtual ~NcclApi() = default;

  virtual NcclResult UseDevice() = 0;
  // Of the device, on its machine's bus: "0000:1b:00.0". NCCL refuses, or waits for ever for, two ranks with one
  // device.
  virtual NcclResult Address(std::string* address) = 0;
  // For people: what the last call that failed on this thread has to say. "": nothing.
  virtual std::string LastError() = 0;

  virtual NcclResult GetUniqueId(NcclUniqueId* id) = 0;
  // A communicator that does not block. Whatever is returned: it is to be given back unless it is kNone.
  virtual NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank) = 0;
  // kInProgress, or how the last call ended, or what went wrong since.
  virtual NcclResult AsyncError(NcclComm comm) = 0;
  // Flushes, before CommDestroy.
  virtual NcclResult CommFinalize(NcclComm comm) = 0;
  // Give it back. Abort ends what is under way, at any time; Destroy is for one that was finalized.
  virtual NcclResult CommDestroy(NcclComm comm) = 0;
  virtual NcclResult CommAbort(NcclComm comm) = 0;

  // Between the two calls are put onto the stream as one.
  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;

  // `to` at `root` becomes the sum; in place there when it is `from`.
  virtual NcclResult Reduce(const void* from, void* to, std::size_t count, NcclElement element, int root, NcclComm comm,
                            NcclStream stream) = 0;
  // `from` has `count` values for each rank; in place when `to` is where this rank's are.
  virtual NcclResult ReduceScatter(const void* from, void* to, std::size_t count, NcclElement element, NcclComm comm,
                                   NcclStream stream) = 0;
  // `to` has `bytes` of each rank; in place when `from` is where this rank's are.
  virtual NcclResult AllGather(const void* from, void* to, std::size_t bytes, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult Broadcast(void* values, std::size_t bytes, int root, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult Send(const void* from, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult Receive(void* to, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) = 0;

  virtual NcclResult StreamCreate(NcclStream* stream) = 0;
  virtual NcclResult StreamDestroy(NcclStream stream) = 0;
  virtual NcclResult StreamQuery(NcclStream stream) = 0;  // kSuccess: nothing is left to do on it
  virtual NcclResult EventCreate(NcclEvent* event) = 0;
  virtual NcclResult EventDestroy(NcclEvent event) = 0;
  virtual NcclResult EventRecord(NcclEvent event, NcclStream stream) = 0;
  virtual NcclResult EventQuery(NcclEvent event) = 0;  // kSuccess: all that was on the stream before it is done

  // Memory between what is on the stream before the call and what is after it.
  virtual NcclResult Allocate(void** memory, std::size_t bytes, NcclStream stream) = 0;
  virtual NcclResult Free(void* memory, NcclStream stream) = 0;
  // Whether there are kernels for the two below: between float32 and bfloat16, as trainer/core/codec/bf16.h has it.
  virtual bool Rounds() const = 0;
  virtual NcclResult Round(const float* from, void* to, std::size_t count, NcclStream stream) = 0;
  virtual NcclResult Widen(const void* from, float* to, std::size_t count, NcclStream stream) = 0;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_API_H_
