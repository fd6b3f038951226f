#include "trainer/tracking/tensorboard.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/tracking/event.pb.h"
#include "trainer/wire/tf_record.h"

namespace downpour::tracking {
namespace {

constexpr absl::string_view kPrefix = "events.out.tfevents.";

void SetText(const std::string& text, tensorboard::Summary::Value* value) {
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  tensorboard::TensorProto& tensor = *value->mutable_tensor();
  tensor.set_dtype(tensorboard::TensorProto::DT_STRING);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(text);
}

void SetHistogram(const Histogram& histogram, tensorboard::HistogramProto* to) {
  to->set_min(histogram.min);
  to->set_max(histogram.max);
  to->set_sum(histogram.sum);
  to->set_sum_squares(histogram.sum_squares);
  double count = 0;
  for (const auto& [limit, in_bucket] : histogram.buckets) {
    to->add_bucket_limit(limit);
    to->add_bucket(in_bucket);
    count += in_bucket;
  }
  to->set_num(count);
}

tensorboard::Event EventAt(std::int64_t step, double time) {
  tensorboard::Event event;
  event.set_step(step);
  event.set_wall_time(time);
  return event;
}

void AppendPoint(const Point& point, std::string* to) {
  if (point.begins_history) {
    tensorboard::Event event = EventAt(point.step, point.time);
    event.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    wire::AppendTfRecord(event.SerializeAsString(), to);
  }
  tensorboard::Event event = EventAt(point.step, point.time);
  tensorboard::Summary& summary = *event.mutable_summary();
  for (const Scalar& scalar : point.scalars) {
    tensorboard::Summary::Value& value = *summary.add_value();
    value.set_tag(scalar.name);
    value.set_simple_value(static_cast<float>(scalar.value));
  }
  for (const Histogram& histogram : point.histograms) {
    tensorboard::Summary::Value& value = *summary.add_value();
    value.set_tag(histogram.name);
    SetHistogram(histogram, value.mutable_histo());
  }
  for (const Text& text : point.texts) {
    tensorboard::Summary::Value& value = *summary.add_value();
    value.set_tag(text.name);
    SetText(text.text, &value);
  }
  if (summary.value_size() > 0) wire::AppendTfRecord(event.SerializeAsString(), to);
}

class TensorBoardTracker final : public Tracker {
 public:
  explicit TensorBoardTracker(TensorBoardOptions options)
      : options_(std::move(options)),
        files_(options_.files == nullptr ? checkpoint::PosixFileSystem() : *options_.files) {}

  std::string name() const override { return "tensorboard"; }

  absl::Status Begin(const Run& run, absl::Duration) override {
    run_ = run;
    for (std::size_t end = 1; end <= options_.directory.size(); ++end) {
      if (end < options_.directory.size() && options_.directory[end] != '/') continue;
      const std::string folder = options_.directory.substr(0, end);
      const absl::Status made = files_.MakeDirectory(folder);
      // One above may be there, and not be ours to write into.
      if (made.ok() || absl::IsAlreadyExists(made) || end < options_.directory.size()) continue;
      return Named(made, folder);
    }
    return Named(files_.List(options_.directory).status(), options_.directory);
  }

  absl::Status Write(absl::Span<const Point> points, absl::Duration) override {
    if (points.empty()) return absl::OkStatus();
    std::string records;
    if (writer_ == nullptr) {
      absl::Status opened = Open(points.front().time);
      if (!opened.ok()) return opened;
      tensorboard::Event version = EventAt(0, points.front().time);
      version.set_file_version("brain.Event:2");
      wire::AppendTfRecord(version.SerializeAsString(), &records);
      // With the first point, or the beginning of a history would take it away: that of a run that is resumed may
      // differ.
      Point first = points.front();
      first.texts.push_back({"configuration", absl::StrCat("```json\n", run_.configuration, "\n```\n")});
      AppendPoint(first, &records);
      points.remove_prefix(1);
    }
    for (const Point& point : points) AppendPoint(point, &records);
    const absl::Status written =
        writer_->Append({reinterpret_cast<const std::uint8_t*>(records.data()), records.size()});
    if (written.ok()) {
      has_records_ = true;
      return absl::OkStatus();
    }
    writer_.reset();
    absl::Status status = Named(written, path_);
    // Nothing is in it that does not come again.
    if (!has_records_) files_.Remove(path_).IgnoreError();
    return status;
  }

  absl::Status End(Outcome, double, absl::Duration) override {
    if (writer_ == nullptr) return absl::OkStatus();
    const absl::Status closed = writer_->Close();
    writer_.reset();
    return Named(closed, path_);
  }

 private:
  static absl::Status Named(const absl::Status& status, const std::string& path) {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }

  absl::Status Open(double time) {
    const auto listed = files_.List(options_.directory);
    if (!listed.ok()) return Named(listed.status(), options_.directory);
    auto seconds = static_cast<std::int64_t>(time);
    for (const checkpoint::DirectoryEntry& entry : *listed) {
      absl::string_view rest = entry.name;
      std::int64_t other = 0;
      if (!absl::ConsumePrefix(&rest, kPrefix) || !absl::SimpleAtoi(rest.substr(0, rest.find('.')), &other)) continue;
      // The clock of another machine may be ahead, and this one's may have been set back.
      if (other < std::int64_t{9999999999}) seconds = std::max(seconds, other + 1);
    }
    path_ = absl::StrCat(options_.directory, "/", kPrefix, absl::StrFormat("%010d", seconds), ".", options_.suffix);
    auto created = files_.Create(path_);
    // Another process was faster: the next name is free.
    if (absl::IsAlreadyExists(created.status()))
      return absl::UnavailableError(absl::StrCat(path_, ": is there already"));
    if (!created.ok()) return Named(created.status(), path_);
    writer_ = *std::move(created);
    has_records_ = false;
    return absl::OkStatus();
  }

  const TensorBoardOptions options_;
  checkpoint::FileSystem& files_;
  Run run_;
  std::string path_;                                // of the newest file
  std::unique_ptr<checkpoint::FileWriter> writer_;  // null: the next points open another
  bool has_records_ = false;
};

}  // namespace

std::unique_ptr<Tracker> MakeTensorBoardTracker(TensorBoardOptions options) {
  return std::make_unique<TensorBoardTracker>(std::move(options));
}

}  // namespace downpour::tracking
