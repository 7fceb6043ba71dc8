#include "snapshot/measuring_device.h"

#include <exception>

namespace ptqwatch::internal {
namespace {

// Waiting for the device at every checkpoint would leave it idle most of the time.
constexpr std::chrono::milliseconds kBetweenReadings{1};

}  // namespace

std::chrono::nanoseconds MeasuringDevice::WorkTime(const Clock& clock) noexcept {
  const std::chrono::nanoseconds now = clock.Monotonic();
  if (began_ && now - read_at_ < kBetweenReadings) return worked_;
  try {
    ReadWork();
  } catch (const std::exception&) {
    // The monitor's work meets the same failure and reports it.
  }
  read_at_ = now;
  return worked_;
}

void MeasuringDevice::SkipIdleTime() {
  if (began_) runtime_->Record(begin_, stream_);
}

void MeasuringDevice::ReadWork() {
  runtime_->Record(end_, stream_);
  runtime_->SynchronizeEvent(end_);
  if (began_) worked_ += runtime_->Between(begin_, end_);
  std::swap(begin_, end_);
  began_ = true;
}

}  // namespace ptqwatch::internal
