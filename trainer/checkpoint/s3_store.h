#ifndef DOWNPOUR_TRAINER_CHECKPOINT_S3_STORE_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_S3_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/s3_options.h"
#include "trainer/checkpoint/store.h"

namespace downpour::checkpoint {

// The store at s3://BUCKET/PREFIX, of S3 itself or of a server that speaks its protocol. Asks nobody anything yet.
// Beside what Store promises:
// - A file is created by requests that are refused where something is under its name (If-None-Match), on servers that
//   know this; others are asked before. Files carry a mark of their writer, so that after a lost answer it is known
//   whose the file is.
// - Each call ends within the deadline of the options, or two of them; Append and ReadAt within one for each part or
//   range. A writer that is destroyed without Commit asks the server to forget its parts, for five seconds at most.
// - A writer holds a part in memory, a reader one range.
// - ReadAt: kDataLoss if another file has come in place of the one that was opened, kNotFound if it was removed.
// - The bucket must be there: kNotFound, also of List. kPermissionDenied: the credentials, or what they may.
// kUnavailable:
//   no answer, or a server that cannot, after several attempts.
// kInvalidArgument: not of that form, or an option that cannot be.
absl::StatusOr<std::unique_ptr<Store>> OpenS3Store(const std::string& uri, S3Options options);

// With the options of the environment (S3OptionsFromEnvironment).
absl::StatusOr<std::unique_ptr<Store>> OpenS3Store(const std::string& uri);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_S3_STORE_H_
