#include "trainer/data/files/cached_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <limits>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/files/block_file.h"

namespace downpour::data {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return error == EACCES || error == EPERM ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
}

}  // namespace

class CachedFiles::Impl {
 public:
  Impl(const Files& store, CacheOptions options) : store_(store), options_(std::move(options)) {}
  ~Impl() {
    if (lock_ >= 0) ::close(lock_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Takes the directory, and what an earlier process left there. Once.
  absl::Status Start() {
    std::error_code error;
    std::filesystem::create_directories(options_.directory, error);
    if (error) return SystemError(options_.directory, "cannot be made", error.value());
    const std::string lock = PathOf("lock");
    lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_ < 0) return SystemError(lock, "cannot be opened", errno);
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return SystemError(lock, "cannot be locked", errno);
      return absl::FailedPreconditionError(absl::StrCat(
          options_.directory, ": another process keeps its cache here, expected a directory for each process"));
    }

    struct Found {
      std::filesystem::file_time_type written;
      std::string name;
      std::uint64_t bytes;
    };
    std::vector<Found> found;
    std::filesystem::directory_iterator entry(options_.directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      std::string name = entry->path().filename().string();
      std::error_code ignored;  // what cannot be looked at or removed is not counted on
      if (absl::EndsWith(name, kUnfinishedBlockSuffix)) {
        std::filesystem::remove(entry->path(), ignored);
      } else if (absl::EndsWith(name, kBlockSuffix)) {
        const auto bytes = entry->file_size(ignored);
        const auto written = ignored ? std::filesystem::file_time_type() : entry->last_write_time(ignored);
        if (!ignored) found.push_back({written, std::move(name), bytes});
      }
    }
    if (error) return SystemError(options_.directory, "cannot be listed", error.value());
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.written < b.written; });
    const std::lock_guard<std::mutex> guard(mutex_);
    for (Found& file : found) Insert(std::move(file.name), file.bytes);
    MakeRoom(0);
    return absl::OkStatus();
  }

  // Bytes of the file from `offset`, all of one block. `fetch(offset, bytes)` asks the store for the block.
  template <typename Fetch>
  absl::Status Read(const FileInfo& file, std::uint64_t offset, absl::Span<std::uint8_t> bytes, const Fetch& fetch) {
    const Block block = BlockAt(file, offset);
    const std::uint64_t from = offset - block.offset;
    const std::string name = BlockFileName(block);
    std::shared_ptr<Download> download;
    while (download == nullptr) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (const auto kept = kept_.find(name); kept != kept_.end()) {
        const std::uint64_t number = kept->second.number;
        order_.splice(order_.begin(), order_, kept->second.place);
        lock.unlock();
        absl::Status status = ReadBlockFile(PathOf(name), block, from, bytes);
        lock.lock();
        if (status.ok()) {
          ++counters_.hits;
          return status;
        }
        // It may also have made room for another one meanwhile.
        if (const auto still = kept_.find(name); still != kept_.end() && still->second.number == number) {
          ++counters_.damaged;
          Evict(still);
        }
      } else if (const auto running = downloads_.find(name); running != downloads_.end()) {
        // The thread that downloads is bounded in time.
        const std::shared_ptr<const Download> other = running->second;
        done_.wait(lock, [&] { return other->done; });
        if (!other->status.ok()) return other->status;
        ++counters_.hits;
        lock.unlock();
        CopyOut(*other, from, bytes);
        return absl::OkStatus();
      } else {
        download = std::make_shared<Download>();
        downloads_.emplace(name, download);
        ++counters_.misses;
      }
    }

    std::vector<std::uint8_t> data(block.bytes);
    absl::Status status = fetch(block.offset, absl::MakeSpan(data));
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      download->done = true;
      download->status = status;
      if (status.ok()) {
        download->data = std::move(data);
        counters_.bytes_fetched += block.bytes;
      } else {
        downloads_.erase(name);
      }
    }
    done_.notify_all();
    if (!status.ok()) return status;
    Keep(name, block, download->data);
    CopyOut(*download, from, bytes);
    return absl::OkStatus();
  }

  bool Holds(const FileInfo& file, std::uint64_t offset) const {
    if (offset >= file.bytes) return false;
    const std::string name = BlockFileName(BlockAt(file, offset));
    const std::lock_guard<std::mutex> guard(mutex_);
    return kept_.count(name) > 0;
  }

  Counters counters() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return counters_;
  }

  void Remember(const FileInfo& file) {
    const std::lock_guard<std::mutex> guard(mutex_);
    known_[file.path] = file;
  }
  std::optional<FileInfo> Remembered(const std::string& path) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto known = known_.find(path);
    if (known == known_.end()) return std::nullopt;
    return known->second;
  }

  const Files& store() const { return store_; }
  std::uint64_t block_bytes() const { return options_.block_bytes; }

 private:
  // Of a block, by one thread; others wait for it. What is in it does not change once it is done.
  struct Download {
    bool done = false;
    absl::Status status;
    std::vector<std::uint8_t> data;
  };
  struct Kept {
    std::uint64_t bytes;
    std::uint64_t number;  // tells it from an earlier file of the same name
    std::list<std::string>::iterator place;
  };
  using KeptBlocks = std::unordered_map<std::string, Kept>;

  std::string PathOf(const std::string& name) const { return absl::StrCat(options_.directory, "/", name); }

  Block BlockAt(const FileInfo& file, std::uint64_t offset) const {
    const std::uint64_t begin = offset - offset % options_.block_bytes;
    return {file, begin, static_cast<std::uint32_t>(std::min(options_.block_bytes, file.bytes - begin))};
  }

  static void CopyOut(const Download& download, std::uint64_t from, absl::Span<std::uint8_t> bytes) {
    std::copy_n(download.data.begin() + static_cast<std::ptrdiff_t>(from), bytes.size(), bytes.begin());
  }

  // Puts the block that was downloaded on the disk. Until then others have it from the memory.
  void Keep(const std::string& name, const Block& block, absl::Span<const std::uint8_t> data) {
    const std::uint64_t bytes = BlockFileBytes(block);
    bool there_is_room = bytes <= options_.capacity_bytes;
    if (there_is_room) {
      const std::lock_guard<std::mutex> guard(mutex_);
      MakeRoom(bytes);
      used_ += bytes;
    }
    const bool written = there_is_room && WriteBlockFile(PathOf(name), block, data).ok();
    const std::lock_guard<std::mutex> guard(mutex_);
    if (there_is_room) used_ -= bytes;
    if (written) {
      Insert(name, bytes);
    } else {
      ++counters_.not_kept;
      // The disk has less room than it was to have: the next block is to find some.
      if (there_is_room && !order_.empty()) Evict(kept_.find(order_.back()));
    }
    downloads_.erase(name);
  }

  // The rest is called with mutex_ held.

  void Insert(std::string name, std::uint64_t bytes) {
    order_.push_front(name);
    kept_[std::move(name)] = {bytes, next_number_++, order_.begin()};
    used_ += bytes;
  }

  void Evict(KeptBlocks::iterator kept) {
    // What cannot be removed is found again by the next process.
    ::unlink(PathOf(kept->first).c_str());
    used_ -= kept->second.bytes;
    order_.erase(kept->second.place);
    kept_.erase(kept);
  }

  void MakeRoom(std::uint64_t bytes) {
    while (!order_.empty() && used_ + bytes > options_.capacity_bytes) Evict(kept_.find(order_.back()));
  }

  const Files& store_;
  CacheOptions options_;
  int lock_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable done_;  // of downloads
  std::unordered_map<std::string, std::shared_ptr<Download>> downloads_;
  KeptBlocks kept_;
  std::unordered_map<std::string, FileInfo> known_;  // by path
  std::list<std::string> order_;                     // names of kept_, the newest use first
  std::uint64_t used_ = 0;                           // bytes of kept_, and of what is being written
  std::uint64_t next_number_ = 0;
  Counters counters_;
};

class CachedFiles::File final : public RandomAccessFile {
 public:
  // `file` may be null: it is opened once it is needed.
  File(Impl& cache, FileInfo info, std::unique_ptr<RandomAccessFile> file)
      : cache_(cache), info_(std::move(info)), file_(std::move(file)) {}

  const FileInfo& info() const override { return info_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
    if (offset > info_.bytes || bytes.size() > info_.bytes - offset) {
      return absl::DataLossError(absl::StrFormat("%s: ends at byte %d, expected %d more", info_.path, info_.bytes,
                                                 offset + bytes.size() - info_.bytes));
    }
    const auto fetch = [this](std::uint64_t begin, absl::Span<std::uint8_t> block) {
      auto file = InStore();
      return file.ok() ? (*file)->ReadAt(begin, block) : file.status();
    };
    while (!bytes.empty()) {
      const std::uint64_t left = cache_.block_bytes() - offset % cache_.block_bytes();
      const auto part = bytes.first(std::min<std::uint64_t>(left, bytes.size()));
      if (absl::Status status = cache_.Read(info_, offset, part, fetch); !status.ok()) return status;
      offset += part.size();
      bytes.remove_prefix(part.size());
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<const RandomAccessFile*> InStore() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_ == nullptr) {
      auto opened = cache_.store().Open(info_.path);
      if (!opened.ok()) return opened.status();
      if ((*opened)->info() != info_) {
        return absl::DataLossError(
            absl::StrCat(info_.path, ": is another file than it was when it was looked at first"));
      }
      file_ = *std::move(opened);
    }
    return file_.get();
  }

  Impl& cache_;
  const FileInfo info_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<RandomAccessFile> file_;  // guarded by mutex_; does not change once it is there
};

absl::StatusOr<std::unique_ptr<CachedFiles>> CachedFiles::Create(const Files& store, CacheOptions options) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the cache has no directory");
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (options.block_bytes == 0 || options.block_bytes > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("blocks of the cache have %d bytes, expected 1 to %d", options.block_bytes, kMost));
  }
  auto impl = std::make_unique<Impl>(store, std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<CachedFiles>(new CachedFiles(std::move(impl)));
}

CachedFiles::CachedFiles(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CachedFiles::~CachedFiles() = default;

absl::StatusOr<std::vector<FileInfo>> CachedFiles::List(const std::string& path) const {
  absl::StatusOr<std::vector<FileInfo>> files = impl_->store().List(path);
  if (!files.ok()) return files;
  for (const FileInfo& file : *files) impl_->Remember(file);
  return files;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> CachedFiles::Open(const std::string& path) const {
  if (auto known = impl_->Remembered(path)) return std::make_unique<File>(*impl_, *std::move(known), nullptr);
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = impl_->store().Open(path);
  if (!file.ok()) return file;
  FileInfo info = (*file)->info();
  impl_->Remember(info);
  return std::make_unique<File>(*impl_, std::move(info), *std::move(file));
}

bool CachedFiles::Holds(const FileInfo& file, std::uint64_t offset) const { return impl_->Holds(file, offset); }

CachedFiles::Counters CachedFiles::counters() const { return impl_->counters(); }

}  // namespace downpour::data
