#ifndef PTQWATCH_SESSION_MONITOR_DEVICE_H_
#define PTQWATCH_SESSION_MONITOR_DEVICE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"

namespace ptqwatch::internal {

/// MonitorOptions::monitor_device: the trainer's.
inline constexpr std::string_view kTrainerDevice = "trainer";

/// Where a model is measured, and what whoever runs it should know about that.
struct MonitorDevice {
  at::Device device;
  bool shares_gpu = false;   ///< with training
  std::string note = {};     ///< why there; empty where it is the only place
  std::string warning = {};  ///< what the choice risks; empty where it risks nothing
};

/// `option` as in MonitorOptions::monitor_device; `live` is the model's device. `connections` is
/// the environment's CUDA_DEVICE_MAX_CONNECTIONS, or empty: with 1 all streams of a GPU share a
/// queue, so that whatever the monitor starts holds training up. InvalidArgument naming the option
/// and its value. Does not look whether the device is there.
absl::StatusOr<MonitorDevice> ChooseMonitorDevice(std::string_view option, at::Device live,
                                                  int64_t parameters, std::string_view connections);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MONITOR_DEVICE_H_
