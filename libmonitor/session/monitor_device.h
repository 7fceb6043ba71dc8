#ifndef PTQWATCH_SESSION_MONITOR_DEVICE_H_
#define PTQWATCH_SESSION_MONITOR_DEVICE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"

namespace ptqwatch::internal {

/// The MonitorOptions::monitor_device value for the trainer's device.
inline constexpr std::string_view kTrainerDevice = "trainer";

/// The device on which a model is measured, with notes for the user.
struct MonitorDevice {
  at::Device device;
  bool shares_gpu = false;   ///< with training
  std::string note = {};     ///< the reason for the choice; empty if there was no choice
  std::string warning = {};  ///< the risk of the choice; empty if there is none
};

/// Environment variables that change how a GPU works; empty if unset.
struct GpuEnvironment {
  std::string connections = {};    ///< CUDA_DEVICE_MAX_CONNECTIONS: with 1, streams share a queue
  std::string tf32_override = {};  ///< NVIDIA_TF32_OVERRIDE: with 1, float32 products are shortened
  static GpuEnvironment OfProcess();
};

/// The model that is trained.
struct LiveModel {
  at::Device device;
  int64_t parameters = 0;
  bool in_other_process = false;  ///< which leaves snapshots in host memory
};

/// `option` as in MonitorOptions::monitor_device. The warning covers the environment. Returns
/// InvalidArgument naming the option and its value. Does not check whether the device exists.
absl::StatusOr<MonitorDevice> ChooseMonitorDevice(std::string_view option, const LiveModel& model,
                                                  const GpuEnvironment& environment);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MONITOR_DEVICE_H_
