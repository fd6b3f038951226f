// NCCL itself, loaded as the programs do it, on every GPU of this machine at once: a rank and a thread each. The same
// over the fake, so that it is known to be right before there is a GPU.
#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/collective/local.h"
#include "trainer/collective/nccl_library.h"
#include "trainer/cuda/plugin.h"

namespace downpour::collective {
namespace {

using Values = std::vector<float>;
using Ends = std::vector<std::unique_ptr<Collective>>;

// Reaching it is a hang.
constexpr absl::Duration kNotHung = absl::Seconds(60);
// For what is to exceed it.
constexpr absl::Duration kShort = absl::Milliseconds(300);
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Devices, and their memory. Calls that return a number return a CUDA error.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual int devices() const = 0;
  virtual NcclApi* api(int device) = 0;
  virtual int Use(int device) = 0;
  virtual int Allocate(void** memory, std::size_t bytes) = 0;
  virtual int Release(void* memory) = 0;
  virtual int Copy(void* to, const void* from, std::size_t bytes) = 0;  // and waits for it
  virtual std::int64_t FreeBytes() = 0;                                 // of the device in use
  virtual std::string Complaints() { return ""; }
};

class FakeMachine : public Machine {
 public:
  FakeMachine() {
    for (int i = 0; i < 2; ++i) devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
  }
  int devices() const override { return static_cast<int>(devices_.size()); }
  NcclApi* api(int device) override { return devices_[static_cast<std::size_t>(device)].get(); }
  int Use(int /*device*/) override { return 0; }
  int Allocate(void** memory, std::size_t bytes) override {
    *memory = new char[bytes];
    return 0;
  }
  int Release(void* memory) override {
    delete[] static_cast<char*>(memory);
    return 0;
  }
  int Copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return 0;
  }
  std::int64_t FreeBytes() override { return 0; }
  std::string Complaints() override { return nccl_.Complaints() + nccl_.Leaks(); }

 private:
  FakeNccl nccl_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
};

class RealMachine : public Machine {
 public:
  static absl::StatusOr<std::unique_ptr<Machine>> New() {
    const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
    if (!table.ok()) return table.status();
    if (absl::Status found = cuda::CheckDevices(**table); !found.ok()) return found;
    auto machine = std::make_unique<RealMachine>(**table);
    int count = 0;
    (*table)->count_devices(&count);
    for (int device = 0; device < count; ++device) {
      absl::StatusOr<std::unique_ptr<NcclApi>> api = LoadNccl(NcclLibraryOptionsOf(**table, device));
      if (!api.ok()) return api.status();
      machine->apis_.push_back(*std::move(api));
    }
    // The plug-in brought it.
    void* const runtime = dlopen("libcudart.so.13", RTLD_NOW);
    void* const function = runtime == nullptr ? nullptr : dlsym(runtime, "cudaMemGetInfo");
    if (function == nullptr) return absl::FailedPreconditionError("libcudart.so.13 has no cudaMemGetInfo");
    std::memcpy(&machine->memory_info_, &function, sizeof(function));
    return machine;
  }

  explicit RealMachine(const cuda::PluginTable& table) : table_(table) {}
  int devices() const override { return static_cast<int>(apis_.size()); }
  NcclApi* api(int device) override { return apis_[static_cast<std::size_t>(device)].get(); }
  int Use(int device) override { return table_.use_device(device); }
  int Allocate(void** memory, std::size_t bytes) override { return table_.allocate(memory, bytes); }
  int Release(void* memory) override { return table_.release(memory); }
  int Copy(void* to, const void* from, std::size_t bytes) override {
    const int error = table_.copy(to, from, bytes, nullptr);
    return error != 0 ? error : table_.synchronize(nullptr);
  }
  std::int64_t FreeBytes() override {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(memory_info_(&free, &total), 0);
    return static_cast<std::int64_t>(free);
  }

 private:
  const cuda::PluginTable& table_;
  std::vector<std::unique_ptr<NcclApi>> apis_;
  int (*memory_info_)(std::size_t* free, std::size_t* total) = nullptr;
};

// Values in the memory of the device that its thread uses.
class OnDevice {
 public:
  OnDevice(Machine* machine, const Values& values) : machine_(*machine), count_(values.size()) {
    EXPECT_EQ(machine_.Allocate(&memory_, values.size() * sizeof(float)), 0);
    Write(values);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { EXPECT_EQ(machine_.Release(memory_), 0); }

  absl::Span<float> span() const { return {static_cast<float*>(memory_), count_}; }
  void Write(const Values& values) { EXPECT_EQ(machine_.Copy(memory_, values.data(), count_ * sizeof(float)), 0); }
  Values Read() const {
    Values values(count_);
    EXPECT_EQ(machine_.Copy(values.data(), memory_, count_ * sizeof(float)), 0);
    return values;
  }

 private:
  Machine& machine_;
  const std::size_t count_;
  void* memory_ = nullptr;
};

int Entries(const char* folder) {
  int entries = 0;
  DIR* const opened = opendir(folder);
  while (readdir(opened) != nullptr) ++entries;
  closedir(opened);
  return entries;
}

// What a process has of what may leak.
struct Held {
  int descriptors = Entries("/proc/self/fd");
  int threads = Entries("/proc/self/task");
  std::int64_t free_bytes = 0;
};

class NcclDeviceTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      absl::StatusOr<std::unique_ptr<Machine>> machine = RealMachine::New();
      if (!machine.ok()) GTEST_SKIP() << machine.status().message();
      machine_ = *std::move(machine);
    } else {
      machine_ = std::make_unique<FakeMachine>();
    }
    std::vector<NcclApi*> apis;
    apis.reserve(static_cast<std::size_t>(machine_->devices()));
    for (int device = 0; device < machine_->devices(); ++device) apis.push_back(machine_->api(device));
    members_ = std::make_unique<LocalMembers>(LocalMembers::OfNccl(apis));
  }
  void TearDown() override {
    members_.reset();
    EXPECT_EQ(machine_ == nullptr ? "" : machine_->Complaints(), "");
  }

  static Ends Form(LocalMembers* members) {
    absl::StatusOr<Ends> ends = members->Form(kNotHung);
    EXPECT_TRUE(ends.ok()) << ends.status();
    return ends.ok() ? *std::move(ends) : Ends();
  }

  // Each rank on a thread of its own that uses its device.
  void Together(const Ends& ends, const std::function<void(Collective* end)>& play) {
    std::vector<std::thread> threads;
    for (const auto& end : ends) {
      threads.emplace_back([this, &play, end = end.get()] {
        EXPECT_EQ(machine_->Use(end->rank()), 0);
        play(end);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Ranks have 1, 2, 3, ...: of `count` values each.
  void ExpectSums(const Ends& ends, std::size_t count, Precision travels = Precision::kFloat32) {
    const float size = static_cast<float>(ends.size());
    Together(ends, [&](Collective* end) {
      const OnDevice values(machine_.get(), Values(count, static_cast<float>(end->rank() + 1)));
      EXPECT_EQ(end->AllReduce(values.span(), kNotHung, travels), absl::OkStatus());
      EXPECT_TRUE(values.Read() == Values(count, size * (size + 1) / 2)) << count;
    });
  }

  std::unique_ptr<Machine> machine_;
  std::unique_ptr<LocalMembers> members_;
};

TEST_P(NcclDeviceTest, AllRanksAddUpAndPassOn) {
  const Ends ends = Form(members_.get());
  ASSERT_EQ(ends.size(), static_cast<std::size_t>(machine_->devices()));
  std::printf("%zu ranks\n", ends.size());
  // Equal parts and others, which are other calls.
  for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1}) {
    ExpectSums(ends, count);
    ExpectSums(ends, count, Precision::kBfloat16);
  }
  const int last = static_cast<int>(ends.size()) - 1;
  Together(ends, [&](Collective* end) {
    const float own = static_cast<float>(end->rank() + 1);
    const OnDevice copied(machine_.get(), Values(1001, own));
    EXPECT_EQ(end->Broadcast(copied.span(), last, kNotHung), absl::OkStatus());
    EXPECT_TRUE(copied.Read() == Values(1001, static_cast<float>(last + 1)));
    const OnDevice parts(machine_.get(), Values(1001, own));
    EXPECT_EQ(end->AllGather(parts.span(), kNotHung), absl::OkStatus());
    const Values gathered = parts.Read();
    for (int rank = 0; rank < end->size(); ++rank) {
      const Part part = PartOf(gathered.size(), rank, end->size());
      for (std::size_t i = part.begin; i < part.end; ++i) EXPECT_EQ(gathered[i], static_cast<float>(rank + 1));
    }
    if (end->size() == 1) return;
    const int next = (end->rank() + 1) % end->size();
    const int previous = (end->rank() + last) % end->size();
    const OnDevice out(machine_.get(), Values(333, own)), in(machine_.get(), Values(333));
    const absl::StatusOr<Handle> sent = end->StartSend(out.span(), next);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(end->Receive(in.span(), previous, kNotHung), absl::OkStatus());
    EXPECT_EQ(end->Wait(*sent, kNotHung), absl::OkStatus());
    EXPECT_TRUE(in.Read() == Values(333, static_cast<float>(previous + 1)));
  });
}

TEST_P(NcclDeviceTest, AnAbortOfOneRankEndsAllAndTheNextGroupIsFormed) {
  for (int victim = 0; victim < machine_->devices(); ++victim) {
    const Ends ends = Form(members_.get());
    ASSERT_FALSE(ends.empty());
    ExpectSums(ends, 1000);
    Together(ends, [&](Collective* end) {
      const OnDevice values(machine_.get(), Values(1000));
      if (end->rank() == victim) return end->Abort();
      const absl::Status status = end->AllReduce(values.span(), kNotHung);
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    });
  }
  ExpectSums(Form(members_.get()), 1000);
}

TEST_P(NcclDeviceTest, ARankThatDoesNotComeExceedsTheLimitOfTheOthers) {
  const Ends ends = Form(members_.get());
  ASSERT_FALSE(ends.empty());
  // One rank alone is all there is, and waits for nobody.
  Together(ends, [&](Collective* end) {
    const OnDevice values(machine_.get(), Values(1000));
    if (end->rank() == 0 && end->size() > 1) return;
    const absl::Status status = end->AllReduce(values.span(), kShort);
    EXPECT_TRUE(end->size() == 1 ? status.ok() : absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
        << status;
  });
  ExpectSums(Form(members_.get()), 1000);
}

TEST_P(NcclDeviceTest, AHundredGroupsOfOneRankLeaveNothingBehind) {
  constexpr int kRounds = 100, kFirst = 10;
  LocalMembers alone = LocalMembers::OfNccl({machine_->api(0)});
  ASSERT_EQ(machine_->Use(0), 0);
  // So many that the device is amid them when it is told to stop; the fake never is.
  const std::size_t many = std::size_t{1} << (GetParam() ? 24 : 12);
  const Values ones(many / 16, 1.0f);
  const OnDevice values(machine_.get(), ones), more(machine_.get(), Values(many));
  const auto begin = std::chrono::steady_clock::now();
  Held before;
  for (int round = 0; round < kRounds; ++round) {
    // What a process has only once is there after the first.
    if (round == kFirst) {
      before = Held();
      before.free_bytes = machine_->FreeBytes();
    }
    const Ends ends = Form(&alone);
    ASSERT_EQ(ends.size(), 1u);
    ASSERT_EQ(ends[0]->AllReduce(values.span(), kNotHung), absl::OkStatus());
    ASSERT_TRUE(values.Read() == ones);
    const absl::StatusOr<Handle> under_way = ends[0]->StartAllReduce(more.span());
    ASSERT_TRUE(under_way.ok()) << under_way.status();
    ends[0]->Abort();
    const absl::Status status = ends[0]->Wait(*under_way, kNotHung);
    ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
  }
  // The last group is over, and a thread that was joined may be listed a moment longer.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Held after;
  while ((after.threads > before.threads || after.descriptors > before.descriptors) &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
    after = Held();
  }
  after.free_bytes = machine_->FreeBytes();
  std::printf("%d groups, %.0f ms each; from the %dth on %lld bytes of the device, %d descriptors, %d threads more\n",
              kRounds,
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / kRounds,
              kFirst, static_cast<long long>(before.free_bytes - after.free_bytes),
              after.descriptors - before.descriptors, after.threads - before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
  // 90 communicators would be far more.
  EXPECT_GE(after.free_bytes, before.free_bytes - 8 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(On, NcclDeviceTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Device" : "Fake"; });

}  // namespace
}  // namespace downpour::collective
