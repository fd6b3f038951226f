#ifndef DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_
#define DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "operator/kube/object.h"

// The other encoding of built-in resources, which costs the API server and its client a fraction of JSON. Its messages
// are those of the files generated.proto of k8s.io/api and k8s.io/apimachinery; around them is what
// k8s.io/apimachinery/pkg/runtime/serializer/protobuf describes. Only fields that are named here are read.
namespace downpour::kube {

class ProtobufField;
using ProtobufFields = std::span<const ProtobufField>;

// A field of a message, as its generated.proto has it, and where JSON has it. Plain value, which does not own the
// fields of what it consists of: tables of them are constants.
class ProtobufField {
 public:
  enum class Kind {
    kText,     // string
    kInteger,  // int32, int64
    kBool,     // bool
    kTime,     // meta/v1 Time; JSON: RFC 3339, to the second
    kTextMap,  // map<string, string>
    kMessage,
    kMessages,  // repeated
  };

  constexpr ProtobufField(int number, std::string_view name, Kind kind) : number_(number), name_(name), kind_(kind) {}
  constexpr ProtobufField(int number, std::string_view name, Kind kind, ProtobufFields message);

  constexpr int number() const { return number_; }
  constexpr std::string_view name() const { return name_; }
  constexpr Kind kind() const { return kind_; }
  constexpr ProtobufFields message() const;  // of kMessage and kMessages

 private:
  int number_;
  std::string_view name_;
  Kind kind_;
  const ProtobufField* message_ = nullptr;
  std::size_t message_size_ = 0;
};

constexpr ProtobufField::ProtobufField(int number, std::string_view name, Kind kind, ProtobufFields message)
    : number_(number), name_(name), kind_(kind), message_(message.data()), message_size_(message.size()) {}

constexpr ProtobufFields ProtobufField::message() const { return {message_, message_size_}; }

// Of meta/v1 ObjectMeta, what ReadMeta reads, but for annotations: some are long, and nobody here looks at a pod's.
ProtobufFields MetadataFields();

// What asks for it; servers that cannot answer in JSON.
inline constexpr char kAcceptProtobuf[] = "application/vnd.kubernetes.protobuf,application/json";

// Whether a body or the object of an event is in this encoding; JSON never looks like it.
bool IsProtobuf(std::string_view bytes);

// A body as the JSON that it stands for, of these fields and `kind`: an object with `fields`, a list of such objects,
// or a Status. Texts that are empty are missing; what is not UTF-8 in one becomes U+FFFD, as in the server's JSON.
// kDataLoss: cut, or not what the fields say. kResourceExhausted: larger than JSON may be.
absl::StatusOr<Json> ParseProtobuf(std::string_view bytes, ProtobufFields fields);

// A body in whichever of both encodings it is, as of ParseProtobuf or ParseJson.
absl::StatusOr<Json> ParseBody(std::string_view bytes, ProtobufFields fields);

// An event of a watch: `type` and `object`, the latter as of ParseProtobuf.
absl::StatusOr<Json> ParseProtobufEvent(std::string_view bytes, ProtobufFields fields);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_PROTOBUF_OBJECT_H_
