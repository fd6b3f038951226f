#include "operator/kube/kubeconfig.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "operator/kube/exec_plugin.h"
#include "proto/host_port.h"
#include "yaml-cpp/yaml.h"

namespace downpour::kube {
namespace {

namespace fs = std::filesystem;

constexpr char kExecVersion[] = "client.authentication.k8s.io/v1";
constexpr char kExecBetaVersion[] = "client.authentication.k8s.io/v1beta1";
constexpr char kExecExtension[] = "client.authentication.k8s.io/exec";

// An entry of one of a kubeconfig's lists, and the file that it is from.
struct Entry {
  YAML::Node node;
  std::string file;
  std::string where;  // "FILE: clusters[kind]"
};

struct Kubeconfig {
  std::map<std::string, Entry> clusters, users, contexts;
  std::string current_context;
  std::string files;  // for people
};

absl::Status BadField(const Entry& entry, const std::string& field, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(entry.where, ".", field, ": ", why));
}

// The following may throw what yaml-cpp throws; ReadKubeconfig catches.

std::string Text(const YAML::Node& node, const char* field) {
  const YAML::Node value = node[field];
  return value && value.IsScalar() ? value.Scalar() : std::string();
}

bool Has(const YAML::Node& node, const char* field) {
  const YAML::Node value = node[field];
  if (!value || value.IsNull()) return false;
  return !value.IsScalar() || !value.Scalar().empty();
}

absl::Status AddEntries(const YAML::Node& root, const std::string& file, const char* list, const char* item,
                        std::map<std::string, Entry>* entries) {
  const YAML::Node nodes = root[list];
  if (!nodes || nodes.IsNull()) return absl::OkStatus();
  if (!nodes.IsSequence()) return absl::InvalidArgumentError(absl::StrCat(file, ": ", list, ": must be a list"));
  for (const YAML::Node& node : nodes) {
    if (!node.IsMap() || !Has(node, "name")) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", list, ": an entry has no name"));
    }
    const std::string name = Text(node, "name");
    const YAML::Node body = node[item];
    Entry entry{body && body.IsMap() ? body : YAML::Node(YAML::NodeType::Map), file,
                absl::StrCat(file, ": ", list, "[", name, "]")};
    entries->emplace(name, std::move(entry));  // the first one wins
  }
  return absl::OkStatus();
}

absl::Status AddFile(const std::string& file, Kubeconfig* config) {
  const absl::StatusOr<std::string> text = ReadCredentialFile(file);
  if (!text.ok()) return text.status();
  const YAML::Node root = YAML::Load(*text);
  absl::StrAppend(&config->files, config->files.empty() ? "" : ":", file);
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return absl::InvalidArgumentError(absl::StrCat(file, ": is no kubeconfig"));
  for (const auto& [list, item, entries] :
       {std::tuple{"clusters", "cluster", &config->clusters}, std::tuple{"users", "user", &config->users},
        std::tuple{"contexts", "context", &config->contexts}}) {
    if (absl::Status status = AddEntries(root, file, list, item, entries); !status.ok()) return status;
  }
  if (config->current_context.empty()) config->current_context = Text(root, "current-context");
  return absl::OkStatus();
}

// `field`-data, in base64, wins over the file that `field` names relative to its kubeconfig.
absl::StatusOr<Material> ReadMaterial(const Entry& entry, const std::string& field) {
  Material material;
  const std::string data_field = field + "-data";
  if (const std::string data = Text(entry.node, data_field.c_str()); !data.empty()) {
    if (!absl::Base64Unescape(data, &material.value) || material.value.empty()) {
      return BadField(entry, data_field, "is not base64");
    }
  } else if (const std::string file = Text(entry.node, field.c_str()); !file.empty()) {
    material.file = (fs::path(entry.file).parent_path() / file).string();
  }
  return material;
}

// "http://HOST:PORT": the library takes another port than other clients where there is none.
bool IsPlainProxy(std::string_view url) {
  if (!url.starts_with("http://")) return false;
  url.remove_prefix(std::string_view("http://").size());
  if (url.ends_with('/')) url.remove_suffix(1);
  return url.find_first_of("/@?# ") == std::string_view::npos && CheckPeerAddress(std::string(url)).empty();
}

absl::Status ReadCluster(const Entry& entry, CredentialSettings* settings) {
  settings->server = Text(entry.node, "server");
  if (!settings->server.starts_with("https://") && !settings->server.starts_with("http://")) {
    return BadField(entry, "server", "must be https://HOST:PORT");
  }
  settings->tls_server_name = Text(entry.node, "tls-server-name");
  if (const YAML::Node skip = entry.node["insecure-skip-tls-verify"]; skip && !skip.IsNull()) {
    settings->insecure_skip_tls_verify = skip.as<bool>();
  }
  absl::StatusOr<Material> authority = ReadMaterial(entry, "certificate-authority");
  if (!authority.ok()) return authority.status();
  settings->certificate_authority = *std::move(authority);
  settings->proxy = Text(entry.node, "proxy-url");
  // One that asks for a password would have to be given it, and the library knows no other kinds.
  if (!settings->proxy.empty() && !IsPlainProxy(settings->proxy)) {
    return BadField(entry, "proxy-url", "not supported: only http://HOST:PORT is");
  }
  if (settings->insecure_skip_tls_verify && settings->certificate_authority.given()) {
    return BadField(entry, "insecure-skip-tls-verify", "must not be true where a certificate authority is given");
  }
  return absl::OkStatus();
}

// A header of each request that acts as somebody else.
absl::Status AddImpersonation(const Entry& entry, const char* field, const std::string& value, const char* header,
                              CredentialSettings* settings) {
  for (const char c : value) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) {
      return BadField(entry, field, "not supported: has characters other than visible ASCII");
    }
  }
  settings->impersonation.emplace_back(header, value);
  return absl::OkStatus();
}

absl::Status ReadImpersonation(const Entry& entry, CredentialSettings* settings) {
  if (Has(entry.node, "as-user-extra")) return BadField(entry, "as-user-extra", "not supported");
  const std::string user = Text(entry.node, "as");
  for (const char* field : {"as-uid", "as-groups"}) {
    if (Has(entry.node, field) && user.empty()) return BadField(entry, field, "needs as");
  }
  if (user.empty()) return absl::OkStatus();
  if (absl::Status status = AddImpersonation(entry, "as", user, "Impersonate-User", settings); !status.ok()) {
    return status;
  }
  if (const std::string uid = Text(entry.node, "as-uid"); !uid.empty()) {
    absl::Status status = AddImpersonation(entry, "as-uid", uid, "Impersonate-Uid", settings);
    if (!status.ok()) return status;
  }
  const YAML::Node groups = entry.node["as-groups"];
  if (!groups || groups.IsNull()) return absl::OkStatus();
  // The library would make one header of two, and the server one group of that.
  if (!groups.IsSequence() || groups.size() > 1) return BadField(entry, "as-groups", "not supported: more than one");
  for (const YAML::Node& group : groups) {
    absl::Status status = AddImpersonation(entry, "as-groups", group.as<std::string>(), "Impersonate-Group", settings);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Whether the cluster has words of its own for plug-ins, which would have to be handed on.
bool HasPluginConfig(const YAML::Node& cluster) {
  const YAML::Node extensions = cluster["extensions"];
  if (!extensions || !extensions.IsSequence()) return false;
  return std::any_of(extensions.begin(), extensions.end(),
                     [](const YAML::Node& one) { return Text(one, "name") == kExecExtension; });
}

absl::StatusOr<ExecPlugin> ReadPlugin(const Entry& user) {
  const Entry entry{user.node["exec"], user.file, user.where + ".exec"};
  if (!entry.node.IsMap()) return BadField(user, "exec", "must be a map");
  ExecPlugin plugin;
  plugin.where = entry.where;
  plugin.api_version = Text(entry.node, "apiVersion");
  if (plugin.api_version != kExecVersion && plugin.api_version != kExecBetaVersion) {
    return BadField(entry, "apiVersion", absl::StrCat("must be ", kExecVersion, " or ", kExecBetaVersion));
  }
  plugin.command = Text(entry.node, "command");
  if (plugin.command.empty()) return BadField(entry, "command", "is missing");
  // As kubectl does: a path is of the kubeconfig's folder, a mere name is looked for.
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = (fs::path(entry.file).parent_path() / plugin.command).string();
  }
  if (const YAML::Node arguments = entry.node["args"]; arguments && !arguments.IsNull()) {
    plugin.arguments = arguments.as<std::vector<std::string>>();
  }
  // As it is now: the HTTP library's preparations change what it says of certificates.
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    plugin.environment.insert(parts);
  }
  if (const YAML::Node added = entry.node["env"]; added && !added.IsNull()) {
    for (const YAML::Node& variable : added) {
      const std::string name = Text(variable, "name");
      if (name.empty() || name.find('=') != std::string::npos) return BadField(entry, "env", "an entry has no name");
      plugin.environment[name] = Text(variable, "value");
    }
  }
  plugin.install_hint = Text(entry.node, "installHint");
  if (const YAML::Node provide = entry.node["provideClusterInfo"]; provide && !provide.IsNull()) {
    plugin.provide_cluster_info = provide.as<bool>();
  }
  const std::string mode = Text(entry.node, "interactiveMode");
  if (mode == "Never") {
    plugin.interactive = ExecPlugin::Interactive::kNever;
  } else if (mode == "Always") {
    plugin.interactive = ExecPlugin::Interactive::kAlways;
  } else if (mode != "IfAvailable" && !(mode.empty() && plugin.api_version == kExecBetaVersion)) {
    return BadField(entry, "interactiveMode", "must be Never, IfAvailable or Always");
  }
  return plugin;
}

absl::Status ReadUser(const Entry& entry, ExecPlugins plugins, CredentialSettings* settings) {
  // What would be left out silently must not be: another identity, or none, would act.
  for (const char* field : {"auth-provider", "username", "password"}) {
    if (Has(entry.node, field)) return BadField(entry, field, "not supported");
  }
  if (absl::Status status = ReadImpersonation(entry, settings); !status.ok()) return status;
  if (Has(entry.node, "exec")) {
    for (const char* field :
         {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"}) {
      if (Has(entry.node, field)) return BadField(entry, field, "must not be given together with exec");
    }
    absl::StatusOr<ExecPlugin> plugin = ReadPlugin(entry);
    if (!plugin.ok()) return plugin.status();
    if (plugins == ExecPlugins::kRefuse) {
      return absl::PermissionDeniedError(
          absl::StrCat(plugin->where, ": it would run the program ", plugin->command, ", which nobody allowed"));
    }
    settings->plugin = *std::move(plugin);
    return absl::OkStatus();
  }
  absl::StatusOr<Material> certificate = ReadMaterial(entry, "client-certificate");
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<Material> key = ReadMaterial(entry, "client-key");
  if (!key.ok()) return key.status();
  if (certificate->given() != key->given()) {
    return BadField(entry, certificate->given() ? "client-key" : "client-certificate", "is missing");
  }
  settings->client_certificate = *std::move(certificate);
  settings->client_key = *std::move(key);
  settings->token.value = Text(entry.node, "token");
  if (const std::string file = Text(entry.node, "tokenFile"); !file.empty()) {
    settings->token = {"", (fs::path(entry.file).parent_path() / file).string()};
  }
  return absl::OkStatus();
}

absl::StatusOr<const Entry*> FindEntry(const Kubeconfig& config, const std::map<std::string, Entry>& entries,
                                       const char* kind, const std::string& name) {
  const auto found = entries.find(name);
  if (found != entries.end()) return &found->second;
  return absl::InvalidArgumentError(absl::StrCat(config.files, ": has no ", kind, " \"", name, "\""));
}

absl::StatusOr<CredentialSettings> ReadSettings(const Kubeconfig& config, const std::string& wanted,
                                                ExecPlugins plugins) {
  const std::string& name = wanted.empty() ? config.current_context : wanted;
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(config.files, ": current-context: is not set"));
  const absl::StatusOr<const Entry*> context = FindEntry(config, config.contexts, "context", name);
  if (!context.ok()) return context.status();
  const YAML::Node& node = (*context)->node;
  const absl::StatusOr<const Entry*> cluster = FindEntry(config, config.clusters, "cluster", Text(node, "cluster"));
  if (!cluster.ok()) return cluster.status();
  CredentialSettings settings;
  if (absl::Status status = ReadCluster(**cluster, &settings); !status.ok()) return status;
  if (const std::string user = Text(node, "user"); !user.empty()) {
    const absl::StatusOr<const Entry*> entry = FindEntry(config, config.users, "user", user);
    if (!entry.ok()) return entry.status();
    if (absl::Status status = ReadUser(**entry, plugins, &settings); !status.ok()) return status;
    if (settings.plugin.has_value() && settings.plugin->provide_cluster_info && HasPluginConfig((*cluster)->node)) {
      return BadField(**cluster, "extensions", "not supported: one is for the plug-in");
    }
  }
  if (Has(node, "namespace")) settings.default_namespace = Text(node, "namespace");
  return settings;
}

// Which files make up the kubeconfig. Only one that was named must be there.
absl::StatusOr<std::vector<std::string>> KubeconfigFiles(const std::string& path) {
  if (!path.empty()) return std::vector<std::string>{path};
  std::vector<std::string> candidates = absl::StrSplit(Environment("KUBECONFIG"), ':', absl::SkipEmpty());
  if (candidates.empty()) {
    const std::string home = Environment("HOME");
    if (home.empty()) return absl::NotFoundError("no kubeconfig: neither KUBECONFIG nor HOME is set");
    candidates.push_back(home + "/.kube/config");
  }
  std::vector<std::string> files;
  for (const std::string& file : candidates) {
    std::error_code error;
    if (fs::exists(file, error)) files.push_back(file);
  }
  if (files.empty()) return absl::NotFoundError(absl::StrCat(candidates.front(), ": no such kubeconfig"));
  return files;
}

}  // namespace

absl::StatusOr<CredentialSettings> ReadKubeconfig(const std::string& path, const std::string& context,
                                                  ExecPlugins plugins) {
  const absl::StatusOr<std::vector<std::string>> files = KubeconfigFiles(path);
  if (!files.ok()) return files.status();
  Kubeconfig config;
  std::string reading;
  try {
    for (const std::string& file : *files) {
      reading = file;
      if (absl::Status status = AddFile(file, &config); !status.ok()) return status;
    }
    reading = config.files;
    return ReadSettings(config, context, plugins);
  } catch (const YAML::Exception& error) {
    // Its text may quote the file; the position is enough, and no secret.
    return absl::InvalidArgumentError(absl::StrCat(reading, ": line ", error.mark.line + 1, ": not valid YAML here"));
  }
}

}  // namespace downpour::kube
