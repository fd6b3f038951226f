#ifndef DOWNPOUR_TRAINER_SERVICE_DATA_BYTES_H_
#define DOWNPOUR_TRAINER_SERVICE_DATA_BYTES_H_

#include "trainer/service/metrics.h"
#include "trainer/wire/transport.h"

namespace downpour::service {

// What the data plane carried, since the process began.
inline void PublishDataBytes(const wire::TransportCounters& counters, Metrics* metrics) {
  const auto set = [metrics](const char* direction, const char* way, std::uint64_t bytes) {
    metrics->SetCounter("downpour_data_bytes_total", "Bytes of the data plane.",
                        {{"direction", direction}, {"way", way}}, static_cast<double>(bytes));
  };
  set("received", "network", counters.received_bytes - counters.received_locally);
  set("received", "shared_memory", counters.received_locally);
  set("sent", "network", counters.sent_bytes - counters.sent_locally);
  set("sent", "shared_memory", counters.sent_locally);
}

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_DATA_BYTES_H_
