#include "trainer/data/index_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/new_file.h"
#include "trainer/data/files/posix.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

constexpr absl::string_view kMagic = "DPIX";
constexpr std::uint16_t kVersion = 1;
constexpr std::uint16_t kHeaderBytes = 48;
constexpr std::uint64_t kEntryBytes = 16;
constexpr std::size_t kMostNotes = std::size_t{1} << 30;
constexpr std::size_t kEndBytes = std::size_t{64} << 10;

struct IndexedFile {
  FileInfo info;
  std::uint32_t ends_checksum = 0;
};

// What an index is of.
struct Origin {
  std::string format;
  std::vector<IndexedFile> files;
};

absl::StatusOr<IndexedFile> LookAt(const Files& files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files.Open(path);
  if (!file.ok()) return file.status();
  IndexedFile indexed{(*file)->info(), 0};
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(indexed.info.bytes, kEndBytes));
  if (absl::Status read = (*file)->ReadAt(0, absl::MakeSpan(bytes)); !read.ok()) return read;
  indexed.ends_checksum = wire::Crc32c(bytes);
  if (indexed.info.bytes > kEndBytes) {
    if (absl::Status read = (*file)->ReadAt(indexed.info.bytes - kEndBytes, absl::MakeSpan(bytes)); !read.ok()) {
      return read;
    }
    indexed.ends_checksum = wire::Crc32c(bytes, indexed.ends_checksum);
  }
  return indexed;
}

struct Header {
  std::uint64_t file_bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t description_bytes = 0;
  std::uint32_t entries_checksum = 0;
  std::uint32_t description_checksum = 0;
};

std::string EncodeHeader(const Header& header) {
  Encoder encoder;
  for (const char letter : kMagic) encoder.Put<char>(letter);
  encoder.Put<std::uint16_t>(kVersion);
  encoder.Put<std::uint16_t>(kHeaderBytes);
  encoder.Put<std::uint64_t>(header.file_bytes);
  encoder.Put<std::uint64_t>(header.entries);
  encoder.Put<std::uint64_t>(header.description_bytes);
  encoder.Put<std::uint32_t>(header.entries_checksum);
  encoder.Put<std::uint32_t>(header.description_checksum);
  encoder.Put<std::uint32_t>(0);
  encoder.Put<std::uint32_t>(wire::Crc32c(AsBytes(encoder.bytes())));
  return encoder.bytes();
}

bool DecodeHeader(const std::string& bytes, Header* header) {
  Decoder decoder(bytes);
  absl::string_view magic;
  std::uint16_t version = 0;
  std::uint16_t length = 0;
  if (!decoder.TakeBytes(kMagic.size(), &magic) || !decoder.Take(&version) || !decoder.Take(&length) ||
      !decoder.Take(&header->file_bytes) || !decoder.Take(&header->entries) ||
      !decoder.Take(&header->description_bytes) || !decoder.Take(&header->entries_checksum) ||
      !decoder.Take(&header->description_checksum)) {
    return false;
  }
  // What is encoded again is the same: magic, version, length, what is reserved and the checksum too.
  return EncodeHeader(*header) == bytes;
}

class Builder final : public IndexBuilder {
 public:
  Builder(const Origin& origin, NewFile* file) : origin_(origin), file_(*file), first_(origin.files.size()) {}

  absl::Status Add(const IndexEntry& entry) override {
    if (entry.file < file_number_ || entry.file >= origin_.files.size()) {
      return absl::InternalError(absl::StrFormat("index of %s: a sample in file %d after one in file %d of %d",
                                                 origin_.format, entry.file, file_number_, origin_.files.size()));
    }
    const FileInfo& info = origin_.files[entry.file].info;
    if (entry.offset > info.bytes || entry.bytes > info.bytes - entry.offset) {
      return absl::InternalError(absl::StrFormat("%s: a sample of %d bytes at byte %d, but the file has %d bytes",
                                                 info.path, entry.bytes, entry.offset, info.bytes));
    }
    BeginFilesUpTo(entry.file);
    ++entries_;
    std::uint8_t bytes[kEntryBytes];
    std::memcpy(bytes, &entry.offset, sizeof(entry.offset));
    std::memcpy(bytes + sizeof(entry.offset), &entry.bytes, sizeof(entry.bytes));
    buffer_.insert(buffer_.end(), bytes, bytes + kEntryBytes);
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    return buffer_.size() < kBlock ? absl::OkStatus() : Flush();
  }

  void SetNotes(std::string notes) override { notes_ = std::move(notes); }

  absl::Status Finish() {
    if (notes_.size() > kMostNotes) {
      return absl::ResourceExhaustedError(absl::StrFormat("index of %s: %d bytes of notes, expected no more than %d",
                                                          origin_.format, notes_.size(), kMostNotes));
    }
    if (!origin_.files.empty()) BeginFilesUpTo(static_cast<std::uint32_t>(origin_.files.size()) - 1);
    if (absl::Status flushed = Flush(); !flushed.ok()) return flushed;
    Encoder description;
    description.PutText(origin_.format);
    description.Put<std::uint32_t>(static_cast<std::uint32_t>(origin_.files.size()));
    for (std::size_t i = 0; i < origin_.files.size(); ++i) {
      const IndexedFile& file = origin_.files[i];
      description.PutText(file.info.path);
      description.Put<std::uint64_t>(file.info.bytes);
      description.Put<std::int64_t>(file.info.modified);
      description.Put<std::uint32_t>(file.ends_checksum);
      description.Put<std::uint64_t>(first_[i]);
    }
    const std::string text = description.bytes() + notes_;
    if (absl::Status written = file_.WriteAt(written_, AsBytes(text)); !written.ok()) return written;
    const Header header{written_ + text.size(), entries_, text.size(), checksum_, wire::Crc32c(AsBytes(text))};
    if (absl::Status written = file_.WriteAt(0, AsBytes(EncodeHeader(header))); !written.ok()) return written;
    return file_.Commit();
  }

 private:
  void BeginFilesUpTo(std::uint32_t file) {
    for (; file_number_ < file; ++file_number_) first_[file_number_ + 1] = entries_;
  }

  absl::Status Flush() {
    checksum_ = wire::Crc32c(buffer_, checksum_);
    absl::Status status = file_.WriteAt(written_, buffer_);
    written_ += buffer_.size();
    buffer_.clear();
    return status;
  }

  const Origin& origin_;
  NewFile& file_;
  std::vector<std::uint64_t> first_;
  std::uint32_t file_number_ = 0;
  std::uint64_t entries_ = 0;
  std::uint64_t written_ = kHeaderBytes;
  std::uint32_t checksum_ = 0;
  std::vector<std::uint8_t> buffer_;
  std::string notes_;
};

bool ReadAt(int descriptor, std::uint64_t offset, std::string* bytes) {
  return ReadFully("", descriptor, offset, {reinterpret_cast<std::uint8_t*>(bytes->data()), bytes->size()}).ok();
}

// Held by whoever makes an index in a directory: of processes that begin together one does, and the others use it. They
// wait for ten minutes at most, and where the file system has no locks not at all.
class MakersLock {
 public:
  explicit MakersLock(const std::string& directory)
      : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int attempt = 0; attempt < 6000; ++attempt) {
      if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      absl::SleepFor(absl::Milliseconds(100));
    }
  }
  ~MakersLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  MakersLock(const MakersLock&) = delete;
  MakersLock& operator=(const MakersLock&) = delete;

 private:
  const int descriptor_;
};

IndexEntry EntryAt(const unsigned char* bytes, std::uint32_t file) {
  IndexEntry entry{file, 0, 0};
  std::memcpy(&entry.offset, bytes, sizeof(entry.offset));
  std::memcpy(&entry.bytes, bytes + sizeof(entry.offset), sizeof(entry.bytes));
  return entry;
}

}  // namespace

class IndexStore {
 public:
  // The index in the file, if it is sound and of `origin`; else kDataLoss.
  static absl::StatusOr<IndexFile> Load(int descriptor, const Origin& origin) {
    const absl::Status bad = absl::DataLossError("is no sound index of these files");
    struct stat found {};
    if (::fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode)) return bad;
    std::string begin(kHeaderBytes, '\0');
    Header header;
    if (!ReadAt(descriptor, 0, &begin) || !DecodeHeader(begin, &header)) return bad;
    const std::uint64_t bytes = header.file_bytes;
    if (bytes != static_cast<std::uint64_t>(found.st_size) || bytes < kHeaderBytes ||
        header.entries > (bytes - kHeaderBytes) / kEntryBytes ||
        header.description_bytes != bytes - kHeaderBytes - header.entries * kEntryBytes) {
      return bad;
    }
    IndexFile index;
    index.entries_ = header.entries;
    if (!LoadDescription(descriptor, header, origin, &index) || !EntriesAreSound(descriptor, header, index)) return bad;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("an index of %d bytes cannot be mapped: %s", bytes, std::strerror(errno)));
    }
    ::madvise(mapped, bytes, MADV_RANDOM);
    index.mapped_ = static_cast<const unsigned char*>(mapped);
    index.mapped_bytes_ = bytes;
    return index;
  }

  // What lies under this name. Whatever is wrong with it: another one is made.
  static std::optional<IndexFile> Reuse(const std::string& path, const Origin& origin) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return std::nullopt;
    absl::StatusOr<IndexFile> index = Load(descriptor, origin);
    ::close(descriptor);
    if (!index.ok()) return std::nullopt;
    index->reused_ = true;
    return *std::move(index);
  }

 private:
  static bool LoadDescription(int descriptor, const Header& header, const Origin& origin, IndexFile* index) {
    std::string description(header.description_bytes, '\0');
    if (!ReadAt(descriptor, header.file_bytes - header.description_bytes, &description) ||
        wire::Crc32c(AsBytes(description)) != header.description_checksum) {
      return false;
    }
    Decoder decoder(description);
    std::string format;
    std::uint32_t files = 0;
    if (!decoder.TakeText(&format) || format != origin.format || !decoder.Take(&files) ||
        files != origin.files.size()) {
      return false;
    }
    std::uint64_t before = 0;
    for (const IndexedFile& expected : origin.files) {
      IndexedFile file;
      std::uint64_t first = 0;
      if (!decoder.TakeText(&file.info.path) || !decoder.Take(&file.info.bytes) || !decoder.Take(&file.info.modified) ||
          !decoder.Take(&file.ends_checksum) || !decoder.Take(&first) || file.info != expected.info ||
          file.ends_checksum != expected.ends_checksum) {
        return false;
      }
      if (first < before || first > header.entries || (index->first_.empty() && first != 0)) return false;
      before = first;
      index->first_.push_back(first);
      index->files_.push_back(std::move(file.info));
    }
    index->first_.push_back(header.entries);
    index->notes_ = std::string(decoder.rest());
    return !origin.files.empty() || header.entries == 0;
  }

  // Read rather than mapped: what was looked at once need not stay.
  static bool EntriesAreSound(int descriptor, const Header& header, const IndexFile& index) {
    constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;
    std::vector<std::uint8_t> block;
    std::uint32_t checksum = 0;
    std::uint32_t file = 0;
    for (std::uint64_t begin = 0; begin < header.entries; begin += kBlock) {
      const std::uint64_t count = std::min(kBlock, header.entries - begin);
      block.resize(count * kEntryBytes);
      if (!ReadFully("", descriptor, kHeaderBytes + begin * kEntryBytes, absl::MakeSpan(block)).ok()) return false;
      checksum = wire::Crc32c(block, checksum);
      for (std::uint64_t i = 0; i < count; ++i) {
        while (index.first_[file + 1] <= begin + i) ++file;
        const IndexEntry entry = EntryAt(block.data() + i * kEntryBytes, file);
        const std::uint64_t bytes = index.files_[file].bytes;
        if (entry.offset > bytes || entry.bytes > bytes - entry.offset) return false;
      }
    }
    return checksum == header.entries_checksum;
  }
};

IndexFile::~IndexFile() {
  if (mapped_ != nullptr) ::munmap(const_cast<unsigned char*>(mapped_), mapped_bytes_);
}

IndexFile::IndexFile(IndexFile&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      entries_(other.entries_),
      first_(std::move(other.first_)),
      files_(std::move(other.files_)),
      notes_(std::move(other.notes_)),
      reused_(other.reused_) {}

IndexEntry IndexFile::entry(std::int64_t index) const {
  const auto after = std::upper_bound(first_.begin(), first_.end() - 1, static_cast<std::uint64_t>(index));
  return EntryAt(mapped_ + kHeaderBytes + static_cast<std::uint64_t>(index) * kEntryBytes,
                 static_cast<std::uint32_t>(after - first_.begin() - 1));
}

std::string IndexPath(const std::vector<std::string>& paths, const std::string& format,
                      const std::string& cache_directory) {
  // Two data sets of one name only take turns: an index says what it is of.
  std::string text = format + '\0';
  for (const std::string& path : paths) text += path + '\0';
  return (std::filesystem::path(cache_directory) / absl::StrFormat("%016x.index", Fnv1a(text))).string();
}

absl::StatusOr<IndexFile> OpenOrBuild(const Files& files, const std::vector<std::string>& paths,
                                      const std::string& format, const std::string& cache_directory,
                                      const std::function<absl::Status(IndexBuilder&)>& build) {
  Origin origin{format, {}};
  for (const std::string& path : paths) {
    absl::StatusOr<IndexedFile> file = LookAt(files, path);
    if (!file.ok()) return file.status();
    file->info.path = path;
    origin.files.push_back(*std::move(file));
  }
  std::optional<MakersLock> lock;
  absl::StatusOr<std::unique_ptr<NewFile>> made;
  if (cache_directory.empty()) {
    made = NewFile::CreateAnonymous();
  } else {
    const std::string path = IndexPath(paths, format, cache_directory);
    if (std::optional<IndexFile> kept = IndexStore::Reuse(path, origin); kept.has_value()) return *std::move(kept);
    std::error_code error;
    std::filesystem::create_directories(cache_directory, error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat(cache_directory, ": the directory for indices of data sets cannot be made: ", error.message()));
    }
    lock.emplace(cache_directory);
    if (std::optional<IndexFile> made_meanwhile = IndexStore::Reuse(path, origin); made_meanwhile.has_value()) {
      return *std::move(made_meanwhile);
    }
    made = NewFile::Create(path);
  }
  if (!made.ok()) return made.status();
  Builder builder(origin, made->get());
  if (absl::Status built = build(builder); !built.ok()) return built;
  if (absl::Status finished = builder.Finish(); !finished.ok()) return finished;
  return IndexStore::Load((*made)->descriptor(), origin);
}

}  // namespace downpour::data
