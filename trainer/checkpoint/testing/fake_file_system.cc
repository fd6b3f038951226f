#include "trainer/checkpoint/testing/fake_file_system.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace downpour::checkpoint::testing {

class FakeFileSystem::Writer final : public FileWriter {
 public:
  Writer(FakeFileSystem& system, NodePointer node)
      : system_(system), process_(system.process_), node_(std::move(node)) {}

  absl::Status Append(absl::Span<const std::uint8_t> bytes) override {
    const Fate fate = Next("cannot write");
    std::size_t most = bytes.size();
    if (!fate.status.ok()) most = fate.done ? system_.random_() % (bytes.size() + 1) : 0;
    absl::Status status = fate.status;
    if (system_.limit_.has_value()) {
      const std::uint64_t used = system_.bytes_used();
      const std::uint64_t room = *system_.limit_ > used ? *system_.limit_ - used : 0;
      if (most > room) {
        most = room;
        if (status.ok()) status = SystemError("cannot write", ENOSPC);
      }
    }
    node_->content.append(reinterpret_cast<const char*>(bytes.data()), most);
    return status;
  }

  absl::Status Sync() override {
    const Fate fate = Next("cannot sync");
    if (fate.done && !system_.Lies()) node_->synced = node_->content.size();
    return fate.status;
  }

  absl::Status Close() override { return Next("cannot close").status; }

 private:
  Fate Next(const char* what) {
    if (process_ != system_.process_) return {absl::AbortedError("the process is dead"), false};
    return system_.Next(what);
  }

  FakeFileSystem& system_;
  const std::uint64_t process_;
  const NodePointer node_;
};

class FakeFileSystem::Reader final : public StoreReader {
 public:
  Reader(FakeFileSystem& system, NodePointer node)
      : system_(system), process_(system.process_), node_(std::move(node)), size_(node_->content.size()) {}

  std::uint64_t size() const override { return size_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) override {
    if (process_ != system_.process_) return absl::AbortedError("the process is dead");
    if (const Fate fate = system_.Next("cannot read"); !fate.status.ok()) return fate.status;
    if (offset > size_ || bytes.size() > size_ - offset) {
      return absl::OutOfRangeError(
          absl::StrFormat("cannot read %d bytes from %d: the file has %d", bytes.size(), offset, size_));
    }
    if (offset + bytes.size() > node_->content.size()) {
      return absl::DataLossError(absl::StrFormat("ends at %d, expected %d bytes", node_->content.size(), size_));
    }
    std::copy_n(node_->content.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return absl::OkStatus();
  }

 private:
  FakeFileSystem& system_;
  const std::uint64_t process_;
  const NodePointer node_;
  const std::uint64_t size_;
};

FakeFileSystem::FakeFileSystem(std::uint64_t seed) : random_(seed), root_(std::make_shared<Node>()) {
  root_->directory = true;
}

void FakeFileSystem::FailAt(std::uint64_t operation, int error) { failures_[operation] = error; }

FakeFileSystem::Fate FakeFileSystem::Next(const char* what) {
  const std::uint64_t operation = operations_++;
  if (dead_) return {absl::AbortedError("the process is dead"), false};
  if (die_at_ == operation) {
    dead_ = true;
    return {absl::AbortedError("the process dies"), random_() % 2 == 0};
  }
  const auto failure = failures_.find(operation);
  if (failure == failures_.end()) return {};
  // What fails has no effect, but for an Append that stops somewhere.
  return {SystemError(what, failure->second), absl::string_view(what) == "cannot write"};
}

bool FakeFileSystem::Lies() {
  return lie_probability_ > 0 && std::uniform_real_distribution<double>()(random_) < lie_probability_;
}

void FakeFileSystem::Restart() {
  dead_ = false;
  die_at_.reset();
  failures_.clear();
  ++process_;
}

void FakeFileSystem::Apply(Node& directory, const Change& change) {
  if (!change.removed.empty()) directory.synced_entries.erase(change.removed);
  if (!change.added.empty()) directory.synced_entries[change.added] = change.node;
}

void FakeFileSystem::Settle(Node& directory) {
  const std::size_t kept = random_() % (directory.changes.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) Apply(directory, directory.changes[i]);
  directory.changes.clear();
  directory.entries = directory.synced_entries;
  for (const auto& [name, node] : directory.entries) {
    if (node->directory) {
      Settle(*node);
      continue;
    }
    const std::size_t length = node->content.size();
    const std::size_t whole = node->synced + random_() % (length - node->synced + 1);
    node->content.resize(whole);
    if (random_() % 2 == 0) node->content.resize(length, '\0');
    node->synced = node->content.size();
  }
}

void FakeFileSystem::Crash() {
  Restart();
  Settle(*root_);
}

std::uint64_t FakeFileSystem::Bytes(const Node& node) {
  std::uint64_t bytes = node.content.size();
  for (const auto& [name, entry] : node.entries) bytes += Bytes(*entry);
  return bytes;
}

std::uint64_t FakeFileSystem::bytes_used() const { return Bytes(*root_); }

std::vector<std::string> FakeFileSystem::Files() const {
  std::vector<std::string> files;
  const std::function<void(const Node&, const std::string&)> visit = [&](const Node& node, const std::string& path) {
    for (const auto& [name, entry] : node.entries) {
      if (entry->directory) {
        visit(*entry, path + name + "/");
      } else {
        files.push_back(path + name);
      }
    }
  };
  visit(*root_, "/");
  std::sort(files.begin(), files.end());
  return files;
}

std::string& FakeFileSystem::Content(const std::string& path) { return (*FindNode(path, "content"))->content; }

void FakeFileSystem::Erase(const std::string& path) {
  const Place place = *Find(path, "erase");
  place.parent->entries.erase(place.name);
  place.parent->synced_entries.erase(place.name);
}

absl::StatusOr<FakeFileSystem::Place> FakeFileSystem::Find(const std::string& path, const char* what) const {
  std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  if (parts.empty()) return SystemError(what, EINVAL);
  const std::string name = std::move(parts.back());
  parts.pop_back();
  NodePointer node = root_;
  for (const std::string& part : parts) {
    const auto entry = node->entries.find(part);
    if (entry == node->entries.end()) return SystemError(what, ENOENT);
    if (!entry->second->directory) return SystemError(what, ENOTDIR);
    node = entry->second;
  }
  return Place{node, name};
}

absl::StatusOr<FakeFileSystem::NodePointer> FakeFileSystem::FindNode(const std::string& path, const char* what) const {
  if (path.find_first_not_of('/') == std::string::npos) return root_;
  const absl::StatusOr<Place> place = Find(path, what);
  if (!place.ok()) return place.status();
  const auto entry = place->parent->entries.find(place->name);
  if (entry == place->parent->entries.end()) return SystemError(what, ENOENT);
  return entry->second;
}

absl::StatusOr<std::unique_ptr<FileWriter>> FakeFileSystem::Create(const std::string& path) {
  const Fate fate = Next("cannot create");
  if (!fate.done) return fate.status;
  const absl::StatusOr<Place> place = Find(path, "cannot create");
  if (!place.ok()) return place.status();
  const auto [entry, inserted] = place->parent->entries.try_emplace(place->name, nullptr);
  if (!inserted) return SystemError("cannot create", EEXIST);
  entry->second = std::make_shared<Node>();
  place->parent->changes.push_back({"", place->name, entry->second});
  if (!fate.status.ok()) return fate.status;
  return std::make_unique<Writer>(*this, entry->second);
}

absl::StatusOr<std::unique_ptr<StoreReader>> FakeFileSystem::Open(const std::string& path) {
  if (const Fate fate = Next("cannot open"); !fate.status.ok()) return fate.status;
  absl::StatusOr<NodePointer> node = FindNode(path, "cannot open");
  if (!node.ok()) return node.status();
  if ((*node)->directory) return absl::FailedPreconditionError("cannot open: not a file");
  return std::make_unique<Reader>(*this, *std::move(node));
}

absl::Status FakeFileSystem::RenameExclusive(const std::string& from, const std::string& to) {
  const Fate fate = Next("cannot rename");
  if (!fate.done) return fate.status;
  const absl::StatusOr<Place> source = Find(from, "cannot rename");
  const absl::StatusOr<Place> target = Find(to, "cannot rename");
  if (!source.ok()) return source.status();
  if (!target.ok()) return target.status();
  if (source->parent != target->parent) return SystemError("cannot rename", EXDEV);
  auto& entries = source->parent->entries;
  const auto entry = entries.find(source->name);
  if (entry == entries.end()) return SystemError("cannot rename", ENOENT);
  if (entries.contains(target->name)) return SystemError("cannot rename", EEXIST);
  NodePointer node = entry->second;
  entries.erase(entry);
  entries[target->name] = node;
  source->parent->changes.push_back({source->name, target->name, std::move(node)});
  return fate.status;
}

absl::Status FakeFileSystem::Remove(const std::string& path) {
  const Fate fate = Next("cannot remove");
  if (!fate.done) return fate.status;
  const absl::StatusOr<NodePointer> node = FindNode(path, "cannot remove");
  if (!node.ok()) return node.status();
  if ((*node)->directory) return SystemError("cannot remove", EISDIR);
  const Place place = *Find(path, "cannot remove");
  place.parent->entries.erase(place.name);
  place.parent->changes.push_back({place.name, "", nullptr});
  return fate.status;
}

absl::Status FakeFileSystem::SyncDirectory(const std::string& path) {
  const Fate fate = Next("cannot sync the directory");
  if (!fate.done) return fate.status;
  const absl::StatusOr<NodePointer> node = FindNode(path, "cannot sync the directory");
  if (!node.ok()) return node.status();
  if (!(*node)->directory) return SystemError("cannot sync the directory", ENOTDIR);
  if (!Lies()) {
    for (const Change& change : (*node)->changes) Apply(**node, change);
    (*node)->changes.clear();
  }
  return fate.status;
}

absl::Status FakeFileSystem::MakeDirectory(const std::string& path) {
  const Fate fate = Next("cannot make the directory");
  if (!fate.done) return fate.status;
  const absl::StatusOr<Place> place = Find(path, "cannot make the directory");
  if (!place.ok()) return place.status();
  const auto [entry, inserted] = place->parent->entries.try_emplace(place->name, nullptr);
  if (!inserted) return SystemError("cannot make the directory", EEXIST);
  entry->second = std::make_shared<Node>();
  entry->second->directory = true;
  place->parent->changes.push_back({"", place->name, entry->second});
  return fate.status;
}

absl::Status FakeFileSystem::RemoveDirectory(const std::string& path) {
  const Fate fate = Next("cannot remove the directory");
  if (!fate.done) return fate.status;
  const absl::StatusOr<NodePointer> node = FindNode(path, "cannot remove the directory");
  if (!node.ok()) return node.status();
  if (!(*node)->directory) return SystemError("cannot remove the directory", ENOTDIR);
  if (!(*node)->entries.empty()) return SystemError("cannot remove the directory", ENOTEMPTY);
  const Place place = *Find(path, "cannot remove the directory");
  place.parent->entries.erase(place.name);
  place.parent->changes.push_back({place.name, "", nullptr});
  return fate.status;
}

absl::StatusOr<std::vector<DirectoryEntry>> FakeFileSystem::List(const std::string& path) {
  if (const Fate fate = Next("cannot list"); !fate.status.ok()) return fate.status;
  const absl::StatusOr<NodePointer> node = FindNode(path, "cannot list");
  if (!node.ok()) return node.status();
  if (!(*node)->directory) return SystemError("cannot list", ENOTDIR);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, entry] : (*node)->entries) {
    entries.push_back({name, entry->directory, entry->content.size()});
  }
  return entries;
}

std::string FakeFileSystem::UniqueSuffix() { return absl::StrFormat("%016x", random_()); }

}  // namespace downpour::checkpoint::testing
