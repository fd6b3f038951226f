#ifndef DOWNPOUR_TRAINER_SERVICE_METRICS_H_
#define DOWNPOUR_TRAINER_SERVICE_METRICS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/service/http_server.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace downpour::service {

using Labels = std::map<std::string, std::string>;

// The Prometheus metrics of one process: the one place that knows prometheus-cpp. Labels must be few and bounded: no
// names of pods, no uids, no text. Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Serves /metrics on host:port and returns the address. Both, and errors, as HttpServer's.
  absl::StatusOr<std::string> Serve(const std::string& listen);

  // Sets the value of a series and makes it if need be. A counter is set to a total that must not fall; if it does
  // (a new history began), the series goes on from where it was.
  void SetCounter(const std::string& name, const std::string& help, const Labels& labels, double total);
  void SetGauge(const std::string& name, const std::string& help, const Labels& labels, double value);
  // Adds to a counter; 0 makes the series. Not for one that SetCounter sets.
  void Increment(const std::string& name, const std::string& help, const Labels& labels, double by = 1);
  // Into a histogram; `buckets` rise strictly and are those of the first call with this name.
  void Observe(const std::string& name, const std::string& help, const Labels& labels,
               const std::vector<double>& buckets, double value);
  // Makes the histogram if need be, so that its first value is seen as an increase.
  void DeclareHistogram(const std::string& name, const std::string& help, const Labels& labels,
                        const std::vector<double>& buckets);
  // The series is no longer served; nothing if there is none.
  void RemoveGauge(const std::string& name, const Labels& labels);

  // What /metrics answers now.
  std::string Text() const;

 private:
  struct Series;
  std::shared_ptr<prometheus::Registry> registry_;
  std::mutex mutex_;
  std::unique_ptr<Series> series_;
  std::unique_ptr<HttpServer> server_;  // the last member: it asks for the others
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_METRICS_H_
