#include "support/device_run.h"
#include "support/host_device.h"

namespace ptqwatch::testing {

std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes) {
  return std::make_unique<HostDevice>(bytes);
}

bool BatchesAreExact() { return true; }

}  // namespace ptqwatch::testing
