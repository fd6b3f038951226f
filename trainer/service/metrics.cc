#include "trainer/service/metrics.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

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

  std::map<Key, Total> counters;
  std::map<Key, prometheus::Gauge*> gauges;
  std::map<Key, prometheus::Histogram*> histograms;
};

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()), series_(std::make_unique<Series>()) {}

Metrics::~Metrics() = default;

absl::StatusOr<std::string> Metrics::Serve(const std::string& listen) {
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(listen, /*num_threads=*/1);
    exposer_->RegisterCollectable(registry_);
    const std::size_t colon = listen.rfind(':');
    return absl::StrCat(listen.substr(0, colon), ":", exposer_->GetListeningPorts().at(0));
  } catch (const std::exception&) {  // its text names the library's classes, not the reason
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on ", listen, ": is the port in use?"));
  }
}

void Metrics::SetCounter(const std::string& name, const std::string& help, const Labels& labels, double total) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Series::Total& series = series_->FindCounter(name, help, labels, *registry_);
  if (total > series.newest) series.counter->Increment(total - series.newest);
  series.newest = total;
}

void Metrics::SetGauge(const std::string& name, const std::string& help, const Labels& labels, double value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  prometheus::Gauge*& gauge = series_->gauges[{name, labels}];
  if (gauge == nullptr) gauge = &prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
  gauge->Set(value);
}

void Metrics::Increment(const std::string& name, const std::string& help, const Labels& labels, double by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  series_->FindCounter(name, help, labels, *registry_).counter->Increment(by);
}

void Metrics::Observe(const std::string& name, const std::string& help, const Labels& labels,
                      const std::vector<double>& buckets, double value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  prometheus::Histogram*& histogram = series_->histograms[{name, labels}];
  if (histogram == nullptr) {
    histogram = &prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels, buckets);
  }
  histogram->Observe(value);
}

}  // namespace downpour::service
