#include "trainer/checkpoint/directory_store.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "trainer/checkpoint/about.h"

namespace downpour::checkpoint {
namespace {

constexpr absl::string_view kTemporary = ".tmp-";
constexpr std::size_t kSuffixCharacters = 16;

// The directory that holds `path`.
std::string Parent(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string Join(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, directory == "/" ? "" : "/", name);
}

// The name whose file the temporary one may have become; empty: it is none.
std::string TargetOf(absl::string_view name) {
  if (name.size() <= 1 + kTemporary.size() + kSuffixCharacters || name[0] != '.') return "";
  name.remove_prefix(1);
  name.remove_suffix(kSuffixCharacters);
  return absl::EndsWith(name, kTemporary) ? std::string(name.substr(0, name.size() - kTemporary.size())) : "";
}

class DirectoryStore;

class Writer final : public StoreWriter {
 public:
  Writer(DirectoryStore& store, FileSystem& system, std::string temporary, std::string path,
         std::unique_ptr<FileWriter> file)
      : store_(store),
        system_(system),
        temporary_(std::move(temporary)),
        path_(std::move(path)),
        file_(std::move(file)) {}
  ~Writer() override { Discard(); }

  absl::Status Append(absl::Span<const std::uint8_t> bytes) override {
    if (status_.ok()) status_ = About(path_, file_->Append(bytes));
    return status_;
  }

  absl::Status Commit() override;

 private:
  void Discard() {
    if (file_ == nullptr) return;
    file_.reset();
    // What cannot be removed is a leftover; there is somebody who takes these away.
    system_.Remove(temporary_).IgnoreError();
  }

  DirectoryStore& store_;
  FileSystem& system_;
  const std::string temporary_;
  const std::string path_;
  std::unique_ptr<FileWriter> file_;  // none: it is over
  absl::Status status_;
};

class Reader final : public StoreReader {
 public:
  Reader(std::string path, std::unique_ptr<StoreReader> file) : path_(std::move(path)), file_(std::move(file)) {}
  std::uint64_t size() const override { return file_->size(); }
  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) override {
    return About(path_, file_->ReadAt(offset, bytes));
  }

 private:
  const std::string path_;
  const std::unique_ptr<StoreReader> file_;
};

class DirectoryStore final : public Store {
 public:
  DirectoryStore(FileSystem& system, std::string path) : system_(system), uri_(std::move(path)), root_(uri_) {
    while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
  }

  const std::string& uri() const override { return uri_; }

  absl::StatusOr<std::unique_ptr<StoreWriter>> Create(const std::string& name) override {
    if (absl::Status valid = CheckStoreName(name); !valid.ok()) return valid;
    const std::string path = Join(root_, name);
    if (const auto there = system_.Open(path); !absl::IsNotFound(there.status())) {
      return there.ok() ? About(path, absl::AlreadyExistsError("is there already")) : About(path, there.status());
    }
    const std::string directory = Parent(path);
    const std::string temporary =
        Join(directory, absl::StrCat(".", path.substr(path.rfind('/') + 1), kTemporary, system_.UniqueSuffix()));
    // Whoever removes the last file of a directory removes it too, at any moment.
    constexpr int kTries = 5;
    absl::Status status;
    for (int i = 0; i < kTries; ++i) {
      status = About(directory, MakeDirectories(directory));
      if (!status.ok()) return status;
      if (absl::Status synced = SyncAbove(); !synced.ok()) return synced;
      absl::StatusOr<std::unique_ptr<FileWriter>> file = system_.Create(temporary);
      if (file.ok()) return std::make_unique<Writer>(*this, system_, temporary, path, *std::move(file));
      status = About(path, file.status());
      if (!absl::IsNotFound(status)) return status;
    }
    return status;
  }

  absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& name) override {
    if (absl::Status valid = CheckStoreName(name); !valid.ok()) return valid;
    const std::string path = Join(root_, name);
    absl::StatusOr<std::unique_ptr<StoreReader>> file = system_.Open(path);
    if (!file.ok()) return About(path, file.status());
    return std::make_unique<Reader>(path, *std::move(file));
  }

  absl::StatusOr<std::vector<StoredFile>> List(const std::string& prefix) override {
    std::vector<StoredFile> files;
    absl::Status status =
        Visit("", prefix, [&](const std::string& name, const std::string& target, std::uint64_t bytes) {
          if (target.empty() && CheckStoreName(name).ok()) files.push_back({name, bytes});
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return files;
  }

  absl::Status Remove(const std::string& name) override {
    if (absl::Status valid = CheckStoreName(name); !valid.ok()) return valid;
    return RemoveFile(name);
  }

  absl::Status RemoveLeftovers(const std::string& prefix) override {
    return Visit("", prefix, [&](const std::string& name, const std::string& target, std::uint64_t) {
      return target.empty() ? absl::OkStatus() : RemoveFile(name);
    });
  }

  // The directories from that of `path` up to the one that holds the store: their names may be new too.
  absl::Status SyncUpwards(const std::string& path) {
    std::string directory = path;
    do {
      directory = Parent(directory);
      if (absl::Status synced = About(directory, system_.SyncDirectory(directory)); !synced.ok()) return synced;
    } while (directory.size() > root_.size());
    const std::string parent = Parent(root_);
    return parent == root_ ? absl::OkStatus() : About(parent, system_.SyncDirectory(parent));
  }

 private:
  using Visitor = std::function<absl::Status(const std::string& name, const std::string& target, std::uint64_t bytes)>;

  // mkdir -p.
  absl::Status MakeDirectories(const std::string& directory) {
    absl::Status made = system_.MakeDirectory(directory);
    const std::string parent = Parent(directory);
    if (absl::IsNotFound(made) && parent != directory) {
      if (absl::Status above = MakeDirectories(parent); !above.ok()) return above;
      made = system_.MakeDirectory(directory);
    }
    if (made.ok() && directory.size() < root_.size()) {
      const absl::MutexLock lock(&mutex_);
      above_synced_ = false;
    }
    return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
  }

  // What SyncUpwards leaves out, all the way up. Once, also where nothing was made: whoever made it may have failed, or
  // ended, before it was synced.
  absl::Status SyncAbove() {
    const absl::MutexLock lock(&mutex_);
    std::string directory = Parent(root_);
    for (std::string above = Parent(directory); !above_synced_ && above != directory; above = Parent(directory)) {
      if (absl::Status synced = About(above, system_.SyncDirectory(above)); !synced.ok()) return synced;
      directory = above;
    }
    above_synced_ = true;
    return absl::OkStatus();
  }

  // Every file whose name, or that of what it would become, begins with `prefix`; `directory` is "" or ends with '/'.
  absl::Status Visit(const std::string& directory, const std::string& prefix, const Visitor& visitor) {
    const std::string path = directory.empty() ? root_ : Join(root_, directory.substr(0, directory.size() - 1));
    const absl::StatusOr<std::vector<DirectoryEntry>> entries = system_.List(path);
    if (absl::IsNotFound(entries.status())) return absl::OkStatus();  // not yet, or no longer
    if (!entries.ok()) return About(path, entries.status());
    for (const DirectoryEntry& entry : *entries) {
      absl::Status status;
      if (entry.directory) {
        const std::string below = absl::StrCat(directory, entry.name, "/");
        const bool on_the_way = absl::StartsWith(below, prefix) || absl::StartsWith(prefix, below);
        if (on_the_way && entry.name[0] != '.') status = Visit(below, prefix, visitor);
      } else {
        const std::string target = TargetOf(entry.name);
        const std::string meant = directory + (target.empty() ? entry.name : target);
        if (absl::StartsWith(meant, prefix)) status = visitor(directory + entry.name, target, entry.bytes);
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status RemoveFile(const std::string& name) {
    const std::string path = Join(root_, name);
    absl::Status removed = system_.Remove(path);
    if (!removed.ok()) return absl::IsNotFound(removed) ? absl::OkStatus() : About(path, removed);
    std::string directory = Parent(path);
    // In this order: what is removed after this is not missing before it, whatever the machine does.
    if (absl::Status synced = About(directory, system_.SyncDirectory(directory)); !synced.ok()) return synced;
    while (directory.size() > root_.size()) {
      // Not empty, or somebody else was faster: all the same.
      if (!system_.RemoveDirectory(directory).ok()) break;
      directory = Parent(directory);
    }
    return absl::OkStatus();
  }

  FileSystem& system_;
  const std::string uri_;
  std::string root_;
  absl::Mutex mutex_;
  bool above_synced_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status Writer::Commit() {
  if (!status_.ok()) return status_;
  if (file_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(path_, ": was committed before"));
  status_ = file_->Sync();
  if (status_.ok()) status_ = file_->Close();
  if (status_.ok()) status_ = system_.RenameExclusive(temporary_, path_);
  status_ = About(path_, status_);
  if (!status_.ok()) {
    Discard();
    return status_;
  }
  file_.reset();
  status_ = store_.SyncUpwards(path_);
  return status_;
}

}  // namespace

std::unique_ptr<Store> MakeDirectoryStore(FileSystem& file_system, std::string path) {
  return std::make_unique<DirectoryStore>(file_system, std::move(path));
}

}  // namespace downpour::checkpoint
