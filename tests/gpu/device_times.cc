// Notes when the GPU worked, of any process: CUDA loads this library into those that use a GPU and have its path in
// CUDA_INJECTION64_PATH. Each kernel, copy and memset becomes three u64 in the file DOWNPOUR_DEVICE_TIMES.PID, little
// endian: CUPTI's kind of record, begin and end in nanoseconds; what was lost is a record of kind 0 with their number.
#include <cupti.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Entry = std::array<std::uint64_t, 3>;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::uint32_t kFlushMilliseconds = 100;  // a process may end without a chance to flush
int file = -1;

bool Succeeds(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return true;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "device_times: %s: %s\n", call, text != nullptr ? text : "unknown error");
  return false;
}

template <typename Record>
Entry Times(const CUpti_Activity* activity) {
  const auto* record = reinterpret_cast<const Record*>(activity);
  return {static_cast<std::uint64_t>(activity->kind), record->start, record->end};
}

void CUPTIAPI GiveBuffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *records = 0;  // as many as fit
}

void CUPTIAPI TakeBuffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t /*size*/,
                         std::size_t filled) {
  std::vector<Entry> entries;
  CUpti_Activity* record = nullptr;
  while (filled > 0 && cuptiActivityGetNextRecord(buffer, filled, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        entries.push_back(Times<CUpti_ActivityKernel10>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        entries.push_back(Times<CUpti_ActivityMemcpy6>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        entries.push_back(Times<CUpti_ActivityMemset4>(record));
        break;
      default:
        break;
    }
  }
  std::size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped > 0) {
    entries.push_back({0, dropped, 0});
  }
  std::free(buffer);
  const std::size_t bytes = entries.size() * sizeof(Entry);
  if (bytes > 0 && write(file, entries.data(), bytes) != static_cast<ssize_t>(bytes)) {
    std::fprintf(stderr, "device_times: write: %s\n", std::strerror(errno));
  }
}

}  // namespace

// Called by CUDA when it begins. The process goes on where nothing can be noted, and says why: it is not there for
// that.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("DOWNPOUR_DEVICE_TIMES");
  if (path == nullptr) return 1;
  file = open((std::string(path) + "." + std::to_string(getpid())).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC,
              0644);
  if (file < 0) {
    std::fprintf(stderr, "device_times: %s: %s\n", path, std::strerror(errno));
    return 1;
  }
  bool begun = Succeeds(cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer), "cuptiActivityRegisterCallbacks");
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    begun = begun && Succeeds(cuptiActivityEnable(kind), "cuptiActivityEnable");
  }
  if (begun) Succeeds(cuptiActivityFlushPeriod(kFlushMilliseconds), "cuptiActivityFlushPeriod");
  return 1;
}
