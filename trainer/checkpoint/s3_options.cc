#include "trainer/checkpoint/s3_options.h"

#include <boost/property_tree/ini_parser.hpp>
#include <boost/property_tree/ptree.hpp>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace downpour::checkpoint {
namespace {

// The first that is set and not empty. Secrets that were made from a file often end with a newline.
std::string FromEnvironment(std::initializer_list<const char*> variables) {
  for (const char* const variable : variables) {
    const char* const value = std::getenv(variable);
    if (value == nullptr) continue;
    std::string text(absl::StripAsciiWhitespace(value));
    if (!text.empty()) return text;
  }
  return {};
}

absl::StatusOr<S3Credentials> FromSharedFile() {
  std::string path = FromEnvironment({"AWS_SHARED_CREDENTIALS_FILE"});
  std::string profile = FromEnvironment({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  if (profile.empty()) profile = "default";
  if (path.empty()) path = absl::StrCat(FromEnvironment({"HOME"}), "/.aws/credentials");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no credentials for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and there is no file ", path));
  }
  try {
    boost::property_tree::ptree profiles;
    boost::property_tree::read_ini(path, profiles);
    // A profile's name may have dots, which by default part a path.
    const auto section = profiles.get_child_optional({profile, '\0'});
    if (!section) return absl::InvalidArgumentError(absl::StrCat(path, ": no profile \"", profile, "\""));
    S3Credentials credentials{section->get("aws_access_key_id", ""), section->get("aws_secret_access_key", ""),
                              section->get("aws_session_token", "")};
    if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": profile \"", profile, "\" has no aws_access_key_id or no aws_secret_access_key, expected both"));
    }
    return credentials;
  } catch (const boost::property_tree::ini_parser_error& failure) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": line ", failure.line(), ": ", failure.message()));
  }
}

}  // namespace

absl::StatusOr<S3Options> S3OptionsFromEnvironment() {
  S3Options options;
  options.endpoint = FromEnvironment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  options.ca_bundle = FromEnvironment({"AWS_CA_BUNDLE"});
  if (std::string region = FromEnvironment({"AWS_REGION", "AWS_DEFAULT_REGION"}); !region.empty()) {
    options.region = std::move(region);
  }
  options.credentials = {FromEnvironment({"AWS_ACCESS_KEY_ID"}), FromEnvironment({"AWS_SECRET_ACCESS_KEY"}),
                         FromEnvironment({"AWS_SESSION_TOKEN"})};
  const bool has_id = !options.credentials.access_key_id.empty();
  const bool has_secret = !options.credentials.secret_access_key.empty();
  if (has_id && has_secret) return options;
  if (has_id != has_secret) {
    return absl::InvalidArgumentError(
        absl::StrCat("no credentials for S3: of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only the ",
                     has_id ? "first" : "second", " is set, expected both"));
  }
  absl::StatusOr<S3Credentials> credentials = FromSharedFile();
  if (!credentials.ok()) return credentials.status();
  options.credentials = *std::move(credentials);
  return options;
}

}  // namespace downpour::checkpoint
