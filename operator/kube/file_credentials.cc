#include "operator/kube/file_credentials.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;
constexpr absl::Duration kReadAgainAfter = absl::Minutes(1);
constexpr double kExpiryLeewaySeconds = 10;

// A token goes into a header: what is no visible ASCII would be another header, or none.
absl::StatusOr<std::string> CheckToken(const std::string& text, const std::string& where) {
  std::string token(absl::StripAsciiWhitespace(text));
  if (token.empty()) return absl::UnauthenticatedError(absl::StrCat(where, ": is empty"));
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::UnauthenticatedError(
          absl::StrCat(where, ": is no token: it has blanks or control characters inside"));
    }
  }
  return token;
}

class FileCredentials final : public CredentialSource {
 public:
  FileCredentials(CredentialSettings settings, std::function<double()> clock)
      : settings_(std::move(settings)), clock_(clock ? std::move(clock) : UnixNow) {}

  const std::string& server() const override { return settings_.server; }
  const std::string& tls_server_name() const override { return settings_.tls_server_name; }
  bool insecure_skip_tls_verify() const override { return settings_.insecure_skip_tls_verify; }
  const std::string& default_namespace() const override { return settings_.default_namespace; }

  std::string proxy() const override { return settings_.proxy; }
  std::vector<std::pair<std::string, std::string>> impersonation() const override { return settings_.impersonation; }

  absl::StatusOr<Credentials> Get(bool refresh) override {
    const absl::Duration asked = MonotonicNow();
    const std::lock_guard lock(mutex_);
    // Who waited here for another's answer has it.
    if (asked < failed_at_) return failure_;
    if (refresh && asked < renewed_at_) refresh = false;
    const bool expired = expires_.has_value() && clock_() >= *expires_;
    if (!refresh && !expired && newest_.has_value() && MonotonicNow() - read_at_ < kReadAgainAfter) return *newest_;
    absl::StatusOr<Credentials> credentials = ReadFiles();
    if (!credentials.ok()) return credentials.status();
    const bool renews = refresh || expired || !newest_.has_value() || !settings_.plugin.has_value();
    if (settings_.plugin.has_value() && renews) {
      if (absl::Status said = AskPlugin(&*credentials); !said.ok()) {
        failure_ = said;
        failed_at_ = MonotonicNow();
        return said;
      }
    } else if (settings_.plugin.has_value()) {
      credentials->token = newest_->token;
      credentials->client_certificate = newest_->client_certificate;
      credentials->client_key = newest_->client_key;
    }
    newest_ = *credentials;
    read_at_ = MonotonicNow();
    if (renews) renewed_at_ = read_at_;
    return *credentials;
  }

 private:
  static double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

  absl::StatusOr<Credentials> ReadFiles() const {
    Credentials credentials;
    for (const auto& [material, target] :
         {std::pair{&settings_.certificate_authority, &credentials.certificate_authority},
          std::pair{&settings_.client_certificate, &credentials.client_certificate},
          std::pair{&settings_.client_key, &credentials.client_key}, std::pair{&settings_.token, &credentials.token}}) {
      *target = material->value;
      if (material->file.empty()) continue;
      absl::StatusOr<std::string> text = ReadCredentialFile(material->file);
      if (!text.ok()) return absl::UnauthenticatedError(text.status().message());
      *target = *std::move(text);
    }
    if (settings_.token.given()) {
      absl::StatusOr<std::string> token =
          CheckToken(credentials.token, settings_.token.file.empty() ? "token" : settings_.token.file);
      if (!token.ok()) return token.status();
      credentials.token = *std::move(token);
    }
    return credentials;
  }

  absl::Status AskPlugin(Credentials* credentials) {
    const ExecPlugin& plugin = *settings_.plugin;
    Json cluster = {{"server", settings_.server}};
    if (!settings_.tls_server_name.empty()) cluster["tls-server-name"] = settings_.tls_server_name;
    if (settings_.insecure_skip_tls_verify) cluster["insecure-skip-tls-verify"] = true;
    if (!settings_.proxy.empty()) cluster["proxy-url"] = settings_.proxy;
    if (!credentials->certificate_authority.empty()) {
      cluster["certificate-authority-data"] = absl::Base64Escape(credentials->certificate_authority);
    }
    const bool may_ask = plugin.interactive != ExecPlugin::Interactive::kNever;
    absl::StatusOr<ExecCredential> said =
        RunExecPlugin(plugin, cluster, may_ask ? kInteractivePluginLimit : kPluginLimit);
    if (!said.ok()) return said.status();
    if (!said->token.empty()) {
      absl::StatusOr<std::string> token = CheckToken(said->token, plugin.where);
      if (!token.ok()) return token.status();
      credentials->token = *std::move(token);
    }
    credentials->client_certificate = std::move(said->client_certificate);
    credentials->client_key = std::move(said->client_key);
    expires_.reset();
    // A little before; but what is expired already is not asked for with each request.
    if (said->expires.has_value()) {
      expires_ = std::max(*said->expires - kExpiryLeewaySeconds, clock_() + kExpiryLeewaySeconds);
    }
    return absl::OkStatus();
  }

  const CredentialSettings settings_;
  const std::function<double()> clock_;
  std::mutex mutex_;
  std::optional<Credentials> newest_;
  std::optional<double> expires_;  // what the plug-in said; seconds since 1970
  absl::Duration read_at_;         // the files
  absl::Status failure_;           // of the plug-in
  absl::Duration failed_at_ = -absl::InfiniteDuration();
  absl::Duration renewed_at_ = -absl::InfiniteDuration();  // all of it
};

}  // namespace

absl::StatusOr<std::string> ReadCredentialFile(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  if (text.size() > kMaxFileBytes) return absl::ResourceExhaustedError(absl::StrCat(path, ": is too large"));
  return text;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::unique_ptr<CredentialSource> MakeFileCredentials(CredentialSettings settings, std::function<double()> clock) {
  return std::make_unique<FileCredentials>(std::move(settings), std::move(clock));
}

}  // namespace downpour::kube
