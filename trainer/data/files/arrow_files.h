#ifndef DOWNPOUR_TRAINER_DATA_FILES_ARROW_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_ARROW_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/data/files/files.h"

namespace downpour::data {

struct RemoteFilesOptions {
  // Of one call: a list, a file that is opened, a range that is read.
  absl::Duration deadline = absl::Seconds(60);
  // Of S3. To connect, TLS included.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Of S3: an attempt ends when nothing has moved for so long.
  absl::Duration stall_timeout = absl::Seconds(20);
  // Of S3: a request is sent so often at most, with Amazon's own back-off between; all of it within the deadline.
  int attempts = 3;
};

// Whether OpenRemoteFiles knows the scheme of this path: "s3://bucket/key" is remote, "/data" and "data" are not.
bool IsRemote(const std::string& path);

// Files of a store that is reached over the network, by Apache Arrow. This is the one place that knows Arrow's file
// systems. `uri` is one of
//
//   s3://BUCKET[/PATH]                            Amazon S3 and what speaks its protocol
//   gs://BUCKET[/PATH]                            Google Cloud Storage
//   abfs://CONTAINER@ACCOUNT.dfs.core.windows.net[/PATH]   Azure, and the other forms that Arrow knows
//   hdfs://HOST[:PORT][/PATH]                     Hadoop; needs libjvm and libhdfs at run time
//
// and may end in ?NAME=VALUE&... with Arrow's options for that store (region, endpoint_override, scheme, ...). The
// paths that List and Open take are such URIs of the same bucket, container or host. PATH is taken as it is, without
// percent-encoding, and has no '?'.
//
// Credentials of S3: those of the URI; else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else
// Amazon's default chain (profile, web identity, container, instance). AWS_REGION or AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_CA_BUNDLE. The other stores take theirs from where their libraries look
// for them. Errors, and the paths of FileInfo, show neither credentials nor options.
//
// kInvalidArgument: no such URI, or options that cannot be. kFailedPrecondition: a library is missing. Else errors are
// those of files.h; kUnavailable also where there is no answer by the deadline: what was asked is then left to itself,
// and takes one of 16 threads until it ends. The end of a Files waits for those.
//
// All of it, with the files that were opened, is to be destroyed before main returns: Arrow is shut down at exit, and
// cannot be used from then on.
absl::StatusOr<std::unique_ptr<Files>> OpenRemoteFiles(const std::string& uri, const RemoteFilesOptions& options = {});

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_ARROW_FILES_H_
