#ifndef DOWNPOUR_TRAINER_CHECKPOINT_S3_XML_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_S3_XML_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// The bodies of S3's requests and answers: the one place that knows pugixml. kInternal: not what S3 answers.
namespace downpour::checkpoint {

struct S3Error {
  std::string code;     // "NoSuchKey"
  std::string message;  // for people
};
// Nothing: the body is no error of S3.
std::optional<S3Error> ParseS3Error(const std::string& body);

struct S3ObjectPage {
  struct Object {
    std::string key;
    std::uint64_t bytes = 0;
  };
  std::vector<Object> objects;
  std::string next_token;  // empty: this is the last page
};
absl::StatusOr<S3ObjectPage> ParseS3ObjectPage(const std::string& body);

struct S3UploadPage {
  struct Upload {
    std::string key;
    std::string upload_id;
  };
  std::vector<Upload> uploads;
  // Where the next page begins; both empty: this is the last one.
  std::string next_key_marker;
  std::string next_upload_id_marker;
};
absl::StatusOr<S3UploadPage> ParseS3UploadPage(const std::string& body);

// Of a multipart upload that has begun.
absl::StatusOr<std::string> ParseS3UploadId(const std::string& body);

// What completes a multipart upload: the ETags of parts 1, 2, ...
std::string S3CompleteUploadBody(const std::vector<std::string>& etags);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_S3_XML_H_
