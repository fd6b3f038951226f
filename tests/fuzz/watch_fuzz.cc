// Watch streams: cuts in the bytes change nothing, events are objects without managedFields, errors stay.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "operator/kube/api_error.h"
#include "operator/kube/json_text.h"
#include "operator/kube/watch.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using downpour::fuzz::Require;
namespace kube = downpour::kube;

kube::ProtobufFields Fields() {
  static const kube::ProtobufField fields[] = {
      {1, "metadata", kube::ProtobufField::Kind::kMessage, kube::MetadataFields()}};
  return fields;
}

// All events as text, and how it ended.
template <typename NextCut>
std::vector<std::string> DecodeAll(std::string_view text, NextCut next_cut) {
  kube::WatchDecoder decoder(Fields());
  std::vector<std::string> events;
  absl::Status end;
  while (!text.empty() && end.ok()) {
    const std::string_view piece = text.substr(0, next_cut());
    text.remove_prefix(piece.size());
    const auto decoded = decoder.Decode(piece);
    end = decoded.status();
    if (!decoded.ok()) break;
    for (const kube::WatchEvent& event : *decoded) {
      Require(event.object.is_object(), "an event is of an object");
      Require(kube::Find(event.object, {"metadata", "managedFields"}) == nullptr, "managedFields are left out");
      (void)kube::ReadMeta(event.object).Key();
      events.push_back(std::to_string(static_cast<int>(event.type)) + kube::DumpJson(event.object));
    }
  }
  if (!end.ok()) {
    Require(decoder.Decode("\n").status() == end, "an error is for ever");
    Require(decoder.Finish() == end, "an error is the end");
  } else {
    end = decoder.Finish();
  }
  events.push_back(end.ToString());
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> whole = DecodeAll(text, [&] { return text.size(); });
  std::uint32_t step = static_cast<std::uint32_t>(size);
  const std::vector<std::string> cut = DecodeAll(text, [&] {
    step = step * 1664525 + 1013904223;
    return std::size_t{1} + (step >> 16) % 41;
  });
  Require(whole == cut, "cuts change nothing");
  // The same bytes as the body of an answer.
  const auto body = kube::ParseProtobuf(text, Fields());
  if (body.ok()) Require(kube::ParseJson(kube::DumpJson(*body)).ok(), "what is read is text");
  // And of a refusal.
  const auto error = kube::ReadApiError({500, std::string(text), {}});
  Require(kube::GetApiError(kube::ToStatus(error))->code == 500, "an error survives its status");
  return 0;
}
