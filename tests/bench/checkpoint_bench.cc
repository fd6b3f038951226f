// Measures checkpoints of one parameter server: what a cut that is open costs the pushes, how fast its files are
// written and loaded against plain files of the same bytes on the same disk, and the memory that it takes. The server
// is a process of its own; this one pushes to it, and gives it the directives of a coordinator.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "downpour/v1/control.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "proto/deadline.h"
#include "proto/member_channel.h"
#include "spdlog/spdlog.h"
#include "tests/bench/paired_ratio.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/checkpoint_name.h"
#include "trainer/core/frame.h"
#include "trainer/core/job_uid.h"
#include "trainer/ps/server.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/receive_memory.h"

namespace downpour::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr std::uint64_t kWorker = 1;
constexpr std::size_t kFloats = std::size_t{1} << 20;  // of a slice: the largest there is
constexpr std::size_t kSliceBytes = kFloats * sizeof(float);
constexpr std::uint32_t kMostUpdates = 1 << 16;
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr double kMebibyte = 1 << 20;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "checkpoint_bench: %s\n", what.c_str());
  std::_Exit(1);
}

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Hello {
  char address[64];
  std::uint64_t session;
};

// Never returns; ends with the process that reads `hello`.
[[noreturn]] void Serve(const std::string& store, std::uint64_t extra_bytes_limit, int hello_fd) {
  spdlog::set_level(spdlog::level::warn);
  ps::PsServerOptions options;
  options.job_uid = kJobUid;
  options.store = store;
  options.extra_bytes_limit = extra_bytes_limit;
  const auto server = ps::PsServer::Start(options);
  if (!server.ok()) Die(server.status().ToString());
  Hello hello{};
  (*server)->address().copy(hello.address, sizeof(hello.address) - 1);
  hello.session = (*server)->session();
  if (write(hello_fd, &hello, sizeof(hello)) != sizeof(hello)) Die("cannot say where the server is");
  if (absl::Status ended = (*server)->Wait(); !ended.ok()) Die(ended.ToString());
  std::_Exit(0);
}

// The server process and what a coordinator would tell it. Not thread-safe.
class Server {
 public:
  // Before this process has threads.
  Server(std::size_t slices, std::string store, std::uint64_t extra_bytes_limit)
      : slices_(slices), store_(std::move(store)) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) Die("no pipe");
    pid_ = fork();
    if (pid_ < 0) Die("cannot fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Serve(store_, extra_bytes_limit, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    if (read(pipe_ends[0], &hello_, sizeof(hello_)) != sizeof(hello_)) Die("the server does not start");
    close(pipe_ends[0]);
  }
  ~Server() { kill(pid_, SIGKILL); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string address() const { return hello_.address; }
  std::uint64_t generation() const { return generation_; }
  std::uint64_t resident_bytes() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/statm"));
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    file >> all >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }

  // `checkpoint`: to begin with; empty: initial values come.
  void BeginGeneration(const std::string& checkpoint) {
    if (stub_ == nullptr) stub_ = v1::ParameterServer::NewStub(MakeMemberChannel(address()));
    ++generation_;
    v1::DirectRequest request = MakeRequest();
    *request.mutable_view() = MakeView(checkpoint);
    Direct(request);
  }

  v1::View MakeView(const std::string& checkpoint) const {
    v1::View view;
    *view.mutable_stamp() = MakeStamp();
    for (std::size_t i = 0; i < slices_; ++i) {
      v1::TensorSpec& tensor = *view.add_tensors();
      tensor.set_name(absl::StrCat("slice", i));
      tensor.set_type(v1::FLOAT32);
      tensor.add_shape(kFloats);
      view.add_layout()->set_primary(0);
    }
    view.mutable_data()->set_sample_count(kMostUpdates);
    view.mutable_data()->set_batch_size(1);
    view.mutable_data()->set_updates_per_shard(kMostUpdates);
    view.mutable_data()->set_epochs(1);
    view.mutable_optimizer()->set_type(v1::SGD);
    view.mutable_optimizer()->set_learning_rate(0.5);
    if (!checkpoint.empty()) {
      view.mutable_restore()->set_store(store_);
      view.mutable_restore()->set_checkpoint(checkpoint);
    }
    return view;
  }

  // Of the generation: the values are there.
  bool Initialised() {
    const v1::DirectReply reply = Direct(MakeRequest());
    if (!reply.restore_error().empty()) Die(reply.restore_error());
    return reply.initialised();
  }

  v1::CutState Cut(std::uint32_t cut, bool sealed) {
    v1::DirectRequest request = MakeRequest();
    request.mutable_cut()->set_cut(cut);
    request.mutable_cut()->set_checkpoint(CheckpointOf(cut));
    request.mutable_cut()->set_sealed(sealed);
    v1::CutState state = Direct(request).cut();
    if (!state.error().empty()) Die(state.error());
    return state;
  }
  void CloseCut() { Direct(MakeRequest()); }
  std::string CheckpointOf(std::uint32_t cut) const { return core::CheckpointName(cut, generation_, 1, kJobUid); }

 private:
  v1::ViewStamp MakeStamp() const {
    v1::ViewStamp stamp;
    stamp.set_generation(generation_);
    stamp.set_incarnation(1);
    stamp.set_epoch(1);
    return stamp;
  }

  v1::DirectRequest MakeRequest() {
    v1::DirectRequest request;
    request.set_job_uid(kJobUid);
    request.set_session(hello_.session);
    *request.mutable_stamp() = MakeStamp();
    request.set_members_version(1);
    request.add_sessions(kWorker);
    request.set_sequence(++sequence_);
    return request;
  }

  v1::DirectReply Direct(const v1::DirectRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(kPatience));
    v1::DirectReply reply;
    const grpc::Status status = stub_->Direct(&context, request, &reply);
    if (!status.ok()) Die(status.error_message());
    if (reply.status() != v1::SYNC_OK) Die(reply.message());
    return reply;
  }

  const std::size_t slices_;
  const std::string store_;
  pid_t pid_ = 0;
  Hello hello_{};
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
  std::uint64_t generation_ = 0;
  std::uint64_t sequence_ = 0;
};

// A worker that pushes slice after slice, some exchanges in flight, from Begin to End.
class Pusher {
 public:
  Pusher(std::string address, std::size_t slices, std::size_t window)
      : address_(std::move(address)),
        slices_(slices),
        window_(window),
        values_(std::make_shared<std::vector<float>>(kFloats, 1.0f)) {}

  void Initialise(std::uint64_t generation) {
    generation_ = generation;
    next_ = 0;
    for (; next_ < slices_; ++next_) Exchange(core::FrameKind::kInitialise, next_, 0, nullptr);
    Await(1);
  }
  // With what the generation before had.
  void Continue(std::uint64_t generation) { generation_ = generation; }

  void Begin() {
    running_ = true;
    thread_ = std::thread([this] {
      while (running_) {
        Await(window_);
        Exchange(core::FrameKind::kPush, next_ % slices_, static_cast<std::uint32_t>(next_ / slices_), &latencies_);
        ++next_;
      }
      Await(1);
    });
  }
  void End() {
    running_ = false;
    thread_.join();
  }
  void SetCut(std::uint32_t cut) { cut_ = cut; }
  // Seconds of the exchanges that ended since the last call.
  std::vector<double> TakeLatencies() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(latencies_, {});
  }

 private:
  void Await(std::size_t limit) {
    absl::MutexLock lock(&mutex_);
    const auto below = [this, limit] { return in_flight_ < limit; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&below), kPatience)) Die("an exchange hangs");
  }

  void Exchange(core::FrameKind kind, std::size_t slice, std::uint32_t update, std::vector<double>* latencies) {
    {
      absl::MutexLock lock(&mutex_);
      ++in_flight_;
    }
    Send(kind, slice, update, latencies, Clock::now());
  }

  void Send(core::FrameKind kind, std::size_t slice, std::uint32_t update, std::vector<double>* latencies,
            Clock::time_point start) {
    core::Frame frame;
    core::FrameHeader& header = frame.header;
    header.kind = kind;
    header.job_uid = *core::ParseJobUid(kJobUid);
    header.generation = generation_;
    header.incarnation = header.epoch = 1;
    header.session = kWorker;
    header.slice = static_cast<std::uint32_t>(slice);
    header.cut = cut_;
    header.update.group = update;
    header.verdict = core::Verdict::kApply;
    header.type = core::DataType::kFloat32;
    header.codec = core::FrameCodec::kFp32;
    header.elements = kFloats;
    frame.payload = core::Payload::OfFloats(*values_, values_);
    wire::Frames request;
    request.push_back(std::move(frame));
    client_->Exchange(address_, std::move(request), kPatience,
                      [this, kind, slice, update, latencies, start](absl::StatusOr<wire::Frames> replies) {
                        if (!replies.ok()) Die(replies.status().ToString());
                        const core::ReplyStatus status = replies->front().header.status;
                        if (status == core::ReplyStatus::kNotReady) {  // the memory of the cut is used up
                          absl::SleepFor(absl::Milliseconds(1));
                          return Send(kind, slice, update, latencies, start);
                        }
                        if (status != core::ReplyStatus::kApplied) {
                          Die(absl::StrCat("slice ", slice, ": status ", static_cast<int>(status)));
                        }
                        absl::MutexLock lock(&mutex_);
                        --in_flight_;
                        if (latencies != nullptr) latencies->push_back(SecondsSince(start));
                      });
  }

  const std::string address_;
  const std::size_t slices_;
  const std::size_t window_;
  const std::shared_ptr<const std::vector<float>> values_;
  const std::unique_ptr<wire::DataClient> client_ = wire::MakeGrpcDataClient();
  std::uint64_t generation_ = 0;
  std::size_t next_ = 0;  // pushes to each slice in turn
  std::atomic<std::uint32_t> cut_ = 0;
  std::atomic<bool> running_ = false;
  std::thread thread_;
  absl::Mutex mutex_;
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> latencies_ ABSL_GUARDED_BY(mutex_);
};

// ---- plain files

// What was removed or written before is not paid for by what is measured next.
void Settle(const std::string& folder) {
  const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0 || syncfs(directory) != 0) Die("cannot sync " + folder);
  close(directory);
}

double WritePlainly(const std::string& path, std::size_t slices) {
  const std::vector<float> values(kFloats, 1.0f);
  const Clock::time_point start = Clock::now();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (std::size_t i = 0; i < slices; ++i) {
    if (file < 0 || write(file, values.data(), kSliceBytes) != static_cast<ssize_t>(kSliceBytes)) Die("cannot write");
  }
  if (fsync(file) != 0 || close(file) != 0) Die("cannot sync");
  return SecondsSince(start);
}

// What reads it next reads the disk.
void Forget(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) Die("cannot drop the page cache of " + path);
  close(file);
}

double ReadPlainly(const std::string& path, std::size_t slices) {
  std::vector<float> values(kFloats);
  const Clock::time_point start = Clock::now();
  const int file = open(path.c_str(), O_RDONLY);
  for (std::size_t i = 0; i < slices; ++i) {
    if (file < 0 || read(file, values.data(), kSliceBytes) != static_cast<ssize_t>(kSliceBytes)) Die("cannot read");
  }
  close(file);
  return SecondsSince(start);
}

// ---- what is measured

double Quantile99(std::vector<double> values) {
  if (values.empty()) Die("no exchange was measured");
  std::sort(values.begin(), values.end());
  return values[(values.size() * 99 + 99) / 100 - 1];
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Options {
  std::size_t slices = 256;
  std::size_t window = 2;
  std::size_t extra_mebibytes = 256;
  int rounds = 5;
  std::string folder = ".";
};

struct Seconds {
  std::vector<double> ours;
  std::vector<double> plain;
};

class Measurement {
 public:
  explicit Measurement(const Options& options)
      : options_(options),
        folder_(MakeFolder(options.folder)),
        server_(options.slices, folder_ + "/store", 0),
        bounded_(options.slices, folder_ + "/bounded", options.extra_mebibytes << 20),
        pusher_(server_.address(), options.slices, options.window),
        bounded_pusher_(bounded_.address(), options.slices, options.window) {}
  ~Measurement() { fs::remove_all(folder_); }

  int Run() {
    MeasureMemory();
    server_.BeginGeneration("");
    pusher_.Initialise(server_.generation());
    for (int round = 0; round <= options_.rounds; ++round) Round(round);
    return Report();
  }

 private:
  static std::string MakeFolder(const std::string& parent) {
    std::string folder = absl::StrCat(parent, "/checkpoint-bench.XXXXXX");
    if (mkdtemp(folder.data()) == nullptr) Die("cannot make a folder in " + parent);
    return folder;
  }

  // From the moment that it is sealed until its files are durable. `look` is called meanwhile.
  double WriteCut(Server& server, std::uint32_t cut, const std::function<void()>& look) {
    const Clock::time_point start = Clock::now();
    for (;;) {
      v1::CutState state = server.Cut(cut, true);
      if (state.has_files()) {
        files_ = std::move(*state.mutable_files());
        return SecondsSince(start);
      }
      if (SecondsSince(start) > absl::ToDoubleSeconds(kPatience)) Die("the cut is not written");
      look();
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  // The most memory that a cut takes of a server that may take so much, while pushes go on.
  void MeasureMemory() {
    bounded_.BeginGeneration("");
    bounded_pusher_.Initialise(bounded_.generation());
    bounded_pusher_.Begin();
    absl::SleepFor(absl::Seconds(3));  // until every slice has been pushed to
    for (std::uint32_t cut = 1; cut <= static_cast<std::uint32_t>(options_.rounds); ++cut) {
      std::uint64_t before = bounded_.resident_bytes();
      std::uint64_t most = before;
      std::uint64_t told = 0;
      bounded_.Cut(cut, false);
      bounded_pusher_.SetCut(cut);
      for (int i = 0; i < 100; ++i) {  // a slow worker is awaited: forks pile up
        most = std::max(most, bounded_.resident_bytes());
        told = std::max(told, bounded_.Cut(cut, false).extra_bytes());
        absl::SleepFor(absl::Milliseconds(10));
      }
      WriteCut(bounded_, cut, [&] { most = std::max(most, bounded_.resident_bytes()); });
      bounded_.CloseCut();
      extra_mebibytes_.push_back(static_cast<double>(most - before) / kMebibyte);
      told_mebibytes_.push_back(static_cast<double>(told) / kMebibyte);
    }
    bounded_pusher_.End();
    fs::remove_all(folder_ + "/bounded");
  }

  void Round(int round) {
    const std::string plain = folder_ + "/plain";
    const bool counts = round > 0;  // the first one warms up
    const auto add = [counts](Seconds& seconds, double ours, double reference) {
      if (!counts) return;
      seconds.ours.push_back(ours);
      seconds.plain.push_back(reference);
    };
    // While pushes go on.
    pusher_.Begin();
    absl::SleepFor(absl::Seconds(1));
    pusher_.TakeLatencies();
    absl::SleepFor(absl::Seconds(2));
    const std::vector<double> without = pusher_.TakeLatencies();
    Settle(folder_);
    pusher_.TakeLatencies();
    server_.Cut(++cut_, false);
    pusher_.SetCut(cut_);
    double ours = WriteCut(server_, cut_, [] {});
    const std::vector<double> with = pusher_.TakeLatencies();
    server_.CloseCut();
    Settle(folder_);
    add(loaded_, ours, WritePlainly(plain, options_.slices));
    pusher_.End();
    if (counts) {
      p99_without_.push_back(Quantile99(without) * 1e3);
      p99_with_.push_back(Quantile99(with) * 1e3);
      all_without_.insert(all_without_.end(), without.begin(), without.end());
      all_with_.insert(all_with_.end(), with.begin(), with.end());
    }
    fs::remove_all(folder_ + "/store");
    fs::remove(plain);
    // Alone.
    Settle(folder_);
    server_.Cut(++cut_, false);
    pusher_.SetCut(cut_);
    ours = WriteCut(server_, cut_, [] {});
    server_.CloseCut();
    Settle(folder_);
    add(quiet_, ours, WritePlainly(plain, options_.slices));
    Restore(plain, add);
    fs::remove_all(folder_ + "/store");
    fs::remove(plain);
  }

  void Restore(const std::string& plain, const std::function<void(Seconds&, double, double)>& add) {
    const std::string name = server_.CheckpointOf(cut_);
    WriteManifest();
    for (const auto& file : fs::directory_iterator(absl::StrCat(folder_, "/store/", name))) Forget(file.path());
    Forget(plain);
    const Clock::time_point start = Clock::now();
    server_.BeginGeneration(name);
    while (!server_.Initialised()) absl::SleepFor(absl::Milliseconds(2));
    const double ours = SecondsSince(start);
    add(restored_, ours, ReadPlainly(plain, options_.slices));
    pusher_.Continue(server_.generation());
  }

  // As the coordinator does once every server has written its files.
  void WriteManifest() {
    v1::CheckpointManifest base;
    base.set_job_name("bench");
    base.set_job_uid(kJobUid);
    base.set_generation(server_.generation());
    base.set_incarnation(1);
    base.set_cut(cut_);
    const v1::View view = server_.MakeView("");
    *base.mutable_tensors() = view.tensors();
    *base.mutable_data() = view.data();
    *base.mutable_optimizer() = view.optimizer();
    const auto manifest = checkpoint::MakeManifest(std::move(base), {files_});
    if (!manifest.ok()) Die(manifest.status().ToString());
    const auto store = checkpoint::OpenStore(folder_ + "/store");
    if (!store.ok()) Die(store.status().ToString());
    if (absl::Status written = checkpoint::WriteManifest(**store, *manifest); !written.ok()) Die(written.ToString());
  }

  nlohmann::json RatioRow(const char* name, const Seconds& seconds, double target, double floor) const {
    const PairedRatio ratio = ComputePairedRatio(seconds.plain, seconds.ours);  // of rates
    const auto rate = [this](double one) { return static_cast<double>(options_.slices * kSliceBytes) / 1e6 / one; };
    return {{"name", name},
            {"ours", rate(Median(seconds.ours))},
            {"reference", rate(Median(seconds.plain))},
            {"ratio", ratio.ratio},
            {"unit", "MB/s"},
            {"target", absl::StrCat(">= ", target)},
            {"floor", floor},
            {"holds", ratio.ratio >= target},
            {"runs", options_.rounds},
            {"spread", {ratio.low, ratio.high}}};
  }

  int Report() const {
    const double p99_with = Quantile99(all_with_) * 1e3;
    const double p99_without = Quantile99(all_without_) * 1e3;
    nlohmann::json rows = nlohmann::json::array();
    rows.push_back({{"name", "checkpoint-push-p99"},
                    {"ours", p99_with},
                    {"reference", p99_without},
                    {"ratio", nullptr},
                    {"unit", "ms"},
                    {"target", "<= +50 ms"},
                    {"floor", 100},
                    {"holds", p99_with - p99_without <= 50},
                    {"runs", options_.rounds},
                    {"spread", nullptr},
                    {"p99With", p99_with_},
                    {"p99Without", p99_without_},
                    {"medians", {Median(all_with_) * 1e3, Median(all_without_) * 1e3}},
                    {"exchanges", {all_with_.size(), all_without_.size()}}});
    rows.push_back(RatioRow("checkpoint-write", loaded_, 0.7, 0.5));
    rows.push_back(RatioRow("checkpoint-write-alone", quiet_, 0.7, 0.5));
    rows.push_back(RatioRow("checkpoint-restore", restored_, 0.5, 0.35));
    const auto limit = static_cast<double>(options_.extra_mebibytes);
    const auto [least, most] = std::minmax_element(extra_mebibytes_.begin(), extra_mebibytes_.end());
    rows.push_back({{"name", "checkpoint-extra-memory"},
                    {"ours", Median(extra_mebibytes_)},
                    {"reference", limit},
                    {"ratio", Median(extra_mebibytes_) / limit},
                    {"unit", "MiB"},
                    {"target", absl::StrCat("<= ", limit, " MiB")},
                    {"holds", *most <= limit},
                    {"runs", options_.rounds},
                    {"spread", {*least / limit, *most / limit}},
                    {"grown", extra_mebibytes_},
                    {"told", told_mebibytes_}});
    std::printf("%s\n", rows.dump(2).c_str());
    return std::all_of(rows.begin(), rows.end(), [](const nlohmann::json& row) { return row["holds"].get<bool>(); })
               ? 0
               : 3;
  }

  const Options options_;
  const std::string folder_;
  Server server_;
  Server bounded_;
  Pusher pusher_;
  Pusher bounded_pusher_;
  std::uint32_t cut_ = 0;
  v1::PsFiles files_;                                                    // of the newest cut
  std::vector<double> p99_without_, p99_with_, all_without_, all_with_;  // milliseconds of a round; seconds of each
  Seconds loaded_, quiet_, restored_;
  std::vector<double> extra_mebibytes_, told_mebibytes_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures checkpoints against plain files, and what they cost pushes. Exit code 3: a target is missed.");
  app.add_option("--slices", options.slices, "slices of the model, 4 MiB each")->check(CLI::Range(1, 1024));
  app.add_option("--window", options.window, "exchanges in flight")->check(CLI::Range(1, 64));
  app.add_option("--extra", options.extra_mebibytes, "extraMemory where it is measured, MiB")
      ->check(CLI::Range(4, 4096));
  app.add_option("--rounds", options.rounds, "measurements of each")->check(CLI::Range(2, 100));
  app.add_option("--folder", options.folder, "on the disk to be measured");
  CLI11_PARSE(app, argc, argv);
  wire::KeepReceiveMemory();  // as a ps does
  wire::ShareFreedMemory();
  return Measurement(options).Run();
}

}  // namespace
}  // namespace downpour::bench

int main(int argc, char** argv) {
  try {
    return downpour::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    return 1;
  }
}
