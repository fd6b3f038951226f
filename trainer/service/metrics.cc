#include "trainer/service/metrics.h"

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace downpour::service {

struct Metrics::Series {
  using Key = std::pair<std::string, Labels>;
  struct Total {
    prometheus::Counter* counter = nullptr;
    double newest = 0;
  };
  // Makes it if need be.
  Total& FindCounter(const std::string& name, const std::string& help, const Labels& labels,
                     prometheus::Registry& registry) {
    Total& series = counters[{name, labels}];
    if (series.counter == nullptr) {
      series.counter = &prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
    }
    return series;
  }

  // Makes it if need be.
  prometheus::Histogram& FindHistogram(const std::string& name, const std::string& help, const Labels& labels,
                                       const std::vector<double>& buckets, prometheus::Registry& registry) {
    prometheus::Histogram*& histogram = histograms[{name, labels}];
    if (histogram == nullptr) {
      histogram = &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
    }
    return *histogram;
  }

  struct OneGauge {
    prometheus::Family<prometheus::Gauge>* family = nullptr;
    prometheus::Gauge* gauge = nullptr;
  };

  std::map<Key, Total> counters;
  std::map<Key, OneGauge> gauges;
  std::map<Key, prometheus::Histogram*> histograms;
};

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()), series_(std::make_unique<Series>()) {}

Metrics::~Metrics() = default;

absl::StatusOr<std::string> Metrics::Serve(const std::string& listen) {
  const auto answer = [this]() -> HttpServer::Answer {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = Text()};
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(listen, {{"/metrics", answer}});
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("metrics: ", server.status().message()));
  }
  server_ = *std::move(server);
  return server_->address();
}

void Metrics::SetCounter(const std::string& name, const std::string& help, const Labels& labels, double total) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Series::Total& series = series_->FindCounter(name, help, labels, *registry_);
  if (total > series.newest) series.counter->Increment(total - series.newest);
  series.newest = total;
}

void Metrics::SetGauge(const std::string& name, const std::string& help, const Labels& labels, double value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Series::OneGauge& series = series_->gauges[{name, labels}];
  if (series.gauge == nullptr) {
    series.family = &prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
    series.gauge = &series.family->Add(labels);
  }
  series.gauge->Set(value);
}

void Metrics::RemoveGauge(const std::string& name, const Labels& labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = series_->gauges.find({name, labels});
  if (found == series_->gauges.end()) return;
  found->second.family->Remove(found->second.gauge);
  series_->gauges.erase(found);
}

void Metrics::Increment(const std::string& name, const std::string& help, const Labels& labels, double by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  series_->FindCounter(name, help, labels, *registry_).counter->Increment(by);
}

void Metrics::Observe(const std::string& name, const std::string& help, const Labels& labels,
                      const std::vector<double>& buckets, double value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  series_->FindHistogram(name, help, labels, buckets, *registry_).Observe(value);
}

void Metrics::DeclareHistogram(const std::string& name, const std::string& help, const Labels& labels,
                               const std::vector<double>& buckets) {
  const std::lock_guard<std::mutex> lock(mutex_);
  series_->FindHistogram(name, help, labels, buckets, *registry_);
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

}  // namespace downpour::service
