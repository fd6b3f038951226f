#ifndef DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_
#define DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "operator/kube/object.h"

// The other encoding of built-in resources, which costs the API server and its client a fraction of JSON. Its messages
// are those of the files generated.proto of k8s.io/api and k8s.io/apimachinery; around them is what
// k8s.io/apimachinery/pkg/runtime/serializer/protobuf describes. Only fields that are named here are read.
namespace downpour::kube {

struct ProtobufField;
using ProtobufFields = std::span<const ProtobufField>;

// A field of a message, as its generated.proto has it, and where JSON has it. Plain value; `message` is not owned.
struct ProtobufField {
  enum class Kind {
    kText,      // string
    kInteger,   // int32, int64
    kBool,      // bool
    kTime,      // meta/v1 Time; JSON: RFC 3339, to the second
    kTextMap,   // map<string, string>
    kMessage,   // of `message`
    kMessages,  // repeated
  };
  int number;
  std::string_view name;
  Kind kind;
  ProtobufFields message = {};
};

// Of meta/v1 ObjectMeta, what ReadMeta reads.
ProtobufFields MetadataFields();

// What asks for it; servers that cannot answer in JSON.
inline constexpr char kAcceptProtobuf[] = "application/vnd.kubernetes.protobuf,application/json";

// Whether a body or the object of an event is in this encoding; JSON never looks like it.
bool IsProtobuf(std::string_view bytes);

// A body as the JSON that it stands for, of these fields and `kind`: an object with `fields`, a list of such objects,
// or a Status. Fields that have their type's zero may be missing. kDataLoss: cut, or not what the fields say.
absl::StatusOr<Json> ParseProtobuf(std::string_view bytes, ProtobufFields fields);

// An event of a watch: `type` and `object`, the latter as of ParseProtobuf.
absl::StatusOr<Json> ParseProtobufEvent(std::string_view bytes, ProtobufFields fields);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_
