#ifndef DOWNPOUR_TRAINER_CORE_TESTING_PS_MESSAGES_H_
#define DOWNPOUR_TRAINER_CORE_TESTING_PS_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/ps.h"

// What tests of a parameter server tell it: a view of three slices, of which it has two, and one worker's frames.
namespace downpour::core {

inline constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
inline constexpr std::uint64_t kPsSession = 77;
inline constexpr std::uint64_t kWorker = 5;
inline constexpr std::uint32_t kElements = 4;
inline constexpr std::uint32_t kForeignSlice = 2;  // owned by another ps; slices 0 and 1 are here
inline constexpr UpdateId kFirst{0, 0, 0};
inline constexpr UpdateId kSecond{0, 0, 1};

inline v1::View MakeView(std::uint64_t generation = 1, std::uint32_t incarnation = 1, std::uint32_t epoch = 1) {
  v1::View view;
  view.mutable_stamp()->set_generation(generation);
  view.mutable_stamp()->set_incarnation(incarnation);
  view.mutable_stamp()->set_epoch(epoch);
  view.set_mode_epoch(epoch);
  for (std::uint32_t primary : {0u, 0u, 1u}) {
    v1::TensorSpec* tensor = view.add_tensors();
    tensor->set_name(absl::StrCat("tensor", view.tensors_size()));
    tensor->set_type(v1::FLOAT32);
    tensor->add_shape(kElements);
    view.add_layout()->set_primary(primary);
  }
  view.mutable_data()->set_sample_count(12);
  view.mutable_data()->set_batch_size(1);
  view.mutable_data()->set_updates_per_shard(4);
  view.mutable_data()->set_epochs(2);
  view.mutable_optimizer()->set_type(v1::SGD);
  view.mutable_optimizer()->set_learning_rate(1);
  return view;
}

// ps-0 and ps-1, each with an address.
inline void AddTwoPs(v1::View* view) {
  for (std::uint32_t index = 0; index < 2; ++index) {
    v1::PsMember* member = view->add_ps();
    member->set_index(index);
    member->set_address(absl::StrCat("ps", index));
  }
}

inline v1::DirectRequest MakeDirective(const v1::View& view, const std::vector<std::uint64_t>& sessions,
                                       std::uint64_t members_version) {
  v1::DirectRequest request;
  request.set_job_uid(kJobUid);
  request.set_session(kPsSession);
  *request.mutable_stamp() = view.stamp();
  *request.mutable_view() = view;
  request.set_members_version(members_version);
  for (const std::uint64_t session : sessions) request.add_sessions(session);
  return request;
}

inline Payload Floats(std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return Payload::OfFloats(*owner, owner);
}

// With a value for each element of a slice.
inline Frame WithFloats(Frame frame, float value) {
  frame.header.type = DataType::kFloat32;
  frame.header.codec = FrameCodec::kFp32;
  frame.header.elements = kElements;
  frame.payload = Floats(std::vector<float>(kElements, value));
  return frame;
}

inline Frame MakeFrame(FrameKind kind, std::uint32_t slice) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.job_uid = *ParseJobUid(kJobUid);
  frame.header.generation = 1;
  frame.header.incarnation = 1;
  frame.header.epoch = 1;
  frame.header.session = kWorker;
  frame.header.slice = slice;
  return frame;
}

// Adds `amount` to every element.
inline Frame Push(std::uint32_t slice, const UpdateId& update, Verdict verdict, float amount = 1) {
  Frame frame = MakeFrame(FrameKind::kPush, slice);
  frame.header.update = update;
  frame.header.verdict = verdict;
  return WithFloats(std::move(frame), -amount);
}

inline Frame VerdictFrame(const UpdateId& update, Verdict verdict) {
  Frame frame = MakeFrame(FrameKind::kVerdict, 0);
  frame.header.update = update;
  frame.header.verdict = verdict;
  return frame;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_TESTING_PS_MESSAGES_H_
