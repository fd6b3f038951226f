// Reads a folder of images by class as a worker does, or makes one. Prints a JSON object.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tests/support/process_memory.h"
#include "trainer/data/image.h"
#include "trainer/data/load_times.h"
#include "trainer/data/open_dataset.h"
#include "trainer/data/prefetcher.h"
#include "trainer/data/random.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kExtent = 150;
constexpr std::int64_t kClasses = 10;

struct Options {
  std::string folder;
  std::int64_t generate = 0;
  int threads = 2;
  std::size_t prefetch = 2;
  std::int64_t batch = 64;
  int epochs = 3;
};

// Soft shapes, a grating and a little noise: compresses about as a photo of this size does.
Value Picture(std::uint64_t number) {
  Random random(1, number, 0);
  Value image{{3, kExtent, kExtent}, std::vector<std::byte>(3 * kExtent * kExtent)};
  const double pitch = 0.1 + random.Fraction();
  const double turn = 6.3 * random.Fraction();
  std::size_t at = 0;
  for (int channel = 0; channel < 3; ++channel) {
    const double across = 0.02 + 0.06 * random.Fraction();
    const double down = 0.02 + 0.06 * random.Fraction();
    for (std::int64_t y = 0; y < kExtent; ++y) {
      for (std::int64_t x = 0; x < kExtent; ++x) {
        const auto column = static_cast<double>(x);
        const auto row = static_cast<double>(y);
        const double value = 128 + 60 * std::sin(across * column) * std::cos(down * row) +
                             20 * std::sin(pitch * (column * std::cos(turn) + row * std::sin(turn))) +
                             16 * (random.Fraction() - 0.5);
        image.bytes[at++] = static_cast<std::byte>(std::clamp(value, 0.0, 255.0));
      }
    }
  }
  return image;
}

absl::Status Generate(const Options& options) {
  for (std::int64_t i = 0; i < options.generate; ++i) {
    const std::string folder = absl::StrCat(options.folder, "/class-", i % kClasses);
    std::filesystem::create_directories(folder);
    const absl::StatusOr<std::vector<std::uint8_t>> bytes = EncodeJpeg(Picture(static_cast<std::uint64_t>(i)), 90);
    if (!bytes.ok()) return bytes.status();
    const std::string path = absl::StrFormat("%s/%06d.jpg", folder, i);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    if (!file.flush()) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

// The minibatches of an epoch; every seed is another one.
std::vector<BatchRequest> Epoch(std::int64_t size, std::int64_t batch, int epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  Random random(2, static_cast<std::uint64_t>(epoch), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.Fraction() * static_cast<double>(i))]);
  }
  std::vector<BatchRequest> requests;
  for (std::int64_t first = 0; first < size; first += batch) {
    requests.push_back({{order.begin() + first, order.begin() + std::min(size, first + batch)},
                        static_cast<std::uint64_t>(epoch * size + first)});
  }
  return requests;
}

absl::Status Measure(const Options& options) {
  DatasetSpec spec;
  spec.format = "ImageFolder";
  spec.directory = options.folder;
  spec.threads = options.threads - 1;  // the prefetcher's reads as well
  spec.transforms = {{.type = "Resize", .height = kExtent, .width = kExtent},
                     {.type = "RandomFlip"},
                     {.type = "Normalize", .mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}}};
  const absl::StatusOr<Datasets> datasets = OpenDatasets(spec, false);
  if (!datasets.ok()) return datasets.status();
  const Dataset& dataset = *datasets->train;
  std::int64_t samples = 0;
  std::int64_t quarter = 0;
  double seconds = 0;
  LoadTimes before;
  {
    Prefetcher prefetcher(&dataset, {.batches = options.prefetch});
    for (int epoch = 0; epoch <= options.epochs; ++epoch) {  // the first one warms up
      const std::vector<BatchRequest> requests = Epoch(dataset.size(), options.batch, epoch);
      if (epoch == 1) before = dataset.times();
      const Stopwatch stopwatch;
      const auto want = [&](std::size_t first) {
        const std::size_t end = std::min(first + options.prefetch, requests.size());
        prefetcher.Want({requests.begin() + static_cast<std::ptrdiff_t>(first),
                         requests.begin() + static_cast<std::ptrdiff_t>(end)});
        return end - 1;
      };
      for (std::size_t i = 0; i < requests.size(); ++i) {
        want(i);
        const auto batch = prefetcher.Take(requests[i]);
        if (!batch.ok()) return batch.status();
        if (epoch > 0) samples += (*batch)->size();
        if (epoch > 0 || i != requests.size() / 4) continue;
        // When the last one is there all that are read ahead are: no more are in memory at any time.
        const auto last = prefetcher.Take(requests[want(i + 1)]);
        if (!last.ok()) return last.status();
        quarter = ProcessMemory("VmHWM");
      }
      if (epoch > 0) seconds += stopwatch.seconds();
    }
  }
  const LoadTimes times = dataset.times();
  const auto count = static_cast<double>(samples);
  const nlohmann::json result = {{"samplesPerSecond", count / seconds},
                                 {"peakAfterQuarter", quarter},
                                 {"peakAtEnd", ProcessMemory("VmHWM")},
                                 {"microseconds",
                                  {{"read", (times.read - before.read) * 1e6 / count},
                                   {"decode", (times.decode - before.decode) * 1e6 / count},
                                   {"transform", (times.transform - before.transform) * 1e6 / count},
                                   {"collate", (times.collate - before.collate) * 1e6 / count}}}};
  std::printf("%s\n", result.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace downpour::data

int main(int argc, char** argv) {
  CLI::App app{"Reads a folder of JPEG images as a worker does."};
  downpour::data::Options options;
  app.add_option("FOLDER", options.folder)->required();
  app.add_option("--generate", options.generate, "makes so many images there, and reads none");
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--prefetch", options.prefetch)->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status =
      options.generate > 0 ? downpour::data::Generate(options) : downpour::data::Measure(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "loader_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
