#include "trainer/cuda/device_error_feedback.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/top_k.h"
#include "trainer/core/sole_owner.h"

namespace downpour::cuda {
namespace {

using core::FrameCodec;

// The bytes are behind the checks, as aligned as the memory is.
constexpr std::size_t kChecksBytes = 256;
static_assert(sizeof(GradientChecks) <= kChecksBytes);

}  // namespace

DeviceErrorFeedback::DeviceErrorFeedback(const core::CodecOptions& options, std::shared_ptr<DeviceKernels> kernels,
                                         absl::Duration limit)
    : options_(options), kernels_(std::move(kernels)), limit_(limit) {}

DeviceErrorFeedback::~DeviceErrorFeedback() {
  for (Entry& entry : entries_) Release(entry);
  kernels_->Free(bytes_);
  kernels_->Free(scratch_);
}

absl::Status DeviceErrorFeedback::Begin(absl::Span<const Slice> slices) {
  if (absl::Status finished = Finish(); !finished.ok()) return finished;
  for (std::size_t i = slices.size(); i < entries_.size(); ++i) Release(entries_[i]);
  entries_.resize(slices.size());
  {
    absl::MutexLock lock(&mutex_);
    states_.resize(slices.size());
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const bool same = entries_[i].slice == slices[i];
      states_[i] = State{same ? states_[i].kept : 0, same && states_[i].has_residual};
    }
  }
  std::size_t bytes = 0, scratch = 0, residuals = 0;
  absl::Status prepared;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t elements = slices[i].elements;
    bytes = std::max(bytes, kChecksBytes + elements * sizeof(float));
    scratch = std::max({scratch, kernels_->ScratchBytes(options_.codec, elements),
                        kernels_->ScratchBytes(FrameCodec::kFp32, elements)});
    if (!prepared.ok()) continue;
    prepared = Prepare(slices[i], &entries_[i]);
  }
  if (prepared.ok()) prepared = Grow(bytes, &bytes_, &bytes_size_);
  if (prepared.ok()) prepared = Grow(scratch, &scratch_, &scratch_size_);
  if (!absl::IsResourceExhausted(prepared)) return prepared;
  for (const Slice& slice : slices) residuals += slice.plain ? 0 : 2 * sizeof(float) * slice.elements;
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory to encode gradients on the device, for which ",
                                                   residuals + bytes + scratch, " bytes are wanted: could not have ",
                                                   prepared.message()));
}

absl::Status DeviceErrorFeedback::Prepare(const Slice& slice, Entry* entry) {
  if (entry->arrived != nullptr && entry->slice == slice) return absl::OkStatus();
  Release(*entry);
  *entry = Entry();
  entry->slice = slice;
  const std::size_t size = core::EncodedBytes(options_.codec, options_.top_k, slice.elements);
  // Few values, or most of them, are no larger in fp32, which is exact.
  entry->exact = slice.plain || options_.codec == FrameCodec::kFp32 || size >= slice.elements * sizeof(float);
  if (!entry->exact) {
    const absl::StatusOr<void*> residuals = kernels_->Allocate(2 * sizeof(float) * slice.elements);
    if (!residuals.ok()) return residuals.status();
    entry->residuals = *residuals;
  }
  const std::size_t bytes = entry->exact ? slice.elements * sizeof(float) : size;
  if (const auto host = FreeHostMemory(kChecksBytes + bytes, entry); !host.ok()) return host.status();
  const absl::StatusOr<void*> arrived = kernels_->CreateEvent();
  if (!arrived.ok()) return arrived.status();
  entry->arrived = *arrived;
  return absl::OkStatus();
}

void DeviceErrorFeedback::Release(Entry& entry) {
  if (entry.arrived != nullptr) kernels_->DestroyEvent(entry.arrived);
  if (entry.residuals != nullptr) kernels_->Free(entry.residuals);
  entry = Entry();
}

absl::Status DeviceErrorFeedback::Grow(std::size_t bytes, void** memory, std::size_t* size) {
  if (*memory != nullptr && *size >= bytes) return absl::OkStatus();
  kernels_->Free(std::exchange(*memory, nullptr));
  const absl::StatusOr<void*> larger = kernels_->Allocate(bytes);
  if (!larger.ok()) return larger.status();
  *memory = *larger;
  *size = bytes;
  return absl::OkStatus();
}

absl::StatusOr<DeviceErrorFeedback::HostMemory*> DeviceErrorFeedback::FreeHostMemory(std::size_t bytes, Entry* entry) {
  // What nobody reads any more and is too small will not be used again.
  std::erase_if(entry->host,
                [bytes](const HostMemory& host) { return host.size < bytes && core::SoleOwner(host.memory); });
  for (HostMemory& host : entry->host) {
    if (host.size >= bytes && core::SoleOwner(host.memory)) return &host;
  }
  const absl::StatusOr<void*> memory = kernels_->AllocateHost(bytes);
  if (!memory.ok()) return memory.status();
  // Whoever has it as a payload may outlive this object.
  const auto free = [kernels = kernels_](std::uint8_t* address) { kernels->FreeHost(address); };
  entry->host.push_back({std::shared_ptr<std::uint8_t>(static_cast<std::uint8_t*>(*memory), free), bytes});
  return &entry->host.back();
}

absl::Status DeviceErrorFeedback::Start(std::uint32_t number, const float* gradient, bool flush) {
  if (number >= entries_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got slice ", number, " of ", entries_.size()));
  }
  Entry& entry = entries_[number];
  State before;
  {
    absl::MutexLock lock(&mutex_);
    State& state = states_[number];
    state.arrived = state.sent = false;
    state.gradient = core::EncodedGradient();
    before = state;
  }
  const std::size_t elements = entry.slice.elements;
  entry.codec = entry.exact || flush ? FrameCodec::kFp32 : options_.codec;
  const std::size_t size = core::EncodedBytes(entry.codec, options_.top_k, elements);
  entry.newest = nullptr;
  const absl::StatusOr<HostMemory*> host = FreeHostMemory(kChecksBytes + size, &entry);
  if (!host.ok()) return host.status();

  float* const residuals = static_cast<float*>(entry.residuals);
  EncodeArguments arguments{};
  arguments.gradient = gradient;
  if (before.has_residual) arguments.residual = residuals + before.kept * elements;
  if (entry.codec != FrameCodec::kFp32) arguments.next = residuals + (1 - before.kept) * elements;
  arguments.bytes = static_cast<std::uint8_t*>(bytes_) + kChecksBytes;
  arguments.elements = elements;
  arguments.kept = core::TopKCount(options_.top_k, elements);
  arguments.scratch = scratch_;
  arguments.checks = static_cast<GradientChecks*>(bytes_);
  absl::Status started = kernels_->Encode(entry.codec, arguments);
  if (started.ok()) started = kernels_->Copy((*host)->memory.get(), bytes_, kChecksBytes + size);
  if (started.ok()) started = kernels_->Record(entry.arrived);
  if (!started.ok()) return started;
  entry.newest = *host;
  last_ = entry.arrived;
  return absl::OkStatus();
}

absl::StatusOr<DeviceErrorFeedback::Arrived> DeviceErrorFeedback::Await(std::uint32_t number) {
  if (number >= entries_.size() || entries_[number].newest == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", number, " was not started"));
  }
  const Entry& entry = entries_[number];
  if (absl::Status over = cuda::Await(*kernels_, entry.arrived, limit_); !over.ok()) return over;
  Arrived arrived{};
  const std::shared_ptr<std::uint8_t>& memory = entry.newest->memory;
  std::memcpy(&arrived.checks, memory.get(), sizeof(arrived.checks));
  const std::size_t size = core::EncodedBytes(entry.codec, options_.top_k, entry.slice.elements);
  arrived.payload = core::Payload({{memory.get() + kChecksBytes, size}}, memory);
  absl::MutexLock lock(&mutex_);
  State& state = states_[number];
  state.gradient = core::EncodedGradient(entry.codec, arrived.payload);
  state.arrived = true;
  return arrived;
}

absl::Status DeviceErrorFeedback::Finish() {
  if (last_ == nullptr) return absl::OkStatus();
  return cuda::Await(*kernels_, std::exchange(last_, nullptr), limit_);
}

core::EncodedGradient DeviceErrorFeedback::Encode(std::uint32_t number, std::uint32_t /*elements*/,
                                                  const core::Payload& /*gradient*/, bool /*flush*/) {
  absl::MutexLock lock(&mutex_);
  // Without bytes it is malformed to a ps, which says so.
  if (number >= states_.size() || !states_[number].arrived) return {};
  states_[number].sent = true;
  return states_[number].gradient;
}

void DeviceErrorFeedback::Keep(std::uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (number >= states_.size() || !states_[number].sent) return;
  State& state = states_[number];
  const bool leaves_rest = state.gradient.codec != FrameCodec::kFp32;
  state = State{leaves_rest ? 1 - state.kept : state.kept, leaves_rest};
}

void DeviceErrorFeedback::Undo(std::uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (number >= states_.size()) return;
  states_[number] = State{states_[number].kept, states_[number].has_residual};
}

void DeviceErrorFeedback::Forget(std::uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (number < states_.size()) states_[number] = State();
}

void DeviceErrorFeedback::Clear() {
  absl::MutexLock lock(&mutex_);
  states_.assign(states_.size(), State());
}

bool DeviceErrorFeedback::HasResidual() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(states_.begin(), states_.end(), [](const State& state) { return state.has_residual; });
}

}  // namespace downpour::cuda
