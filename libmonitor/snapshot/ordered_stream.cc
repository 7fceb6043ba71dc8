#include "snapshot/ordered_stream.h"

#include <exception>
#include <utility>

namespace ptqwatch::internal {
namespace {

// Waiting for the device at every checkpoint would leave it idle most of the time.
constexpr std::chrono::milliseconds kBetweenReadings{1};

}  // namespace

OrderedStream::OrderedStream(std::shared_ptr<DeviceRuntime> live,
                             std::optional<DeviceRuntime::Stream> updates,
                             std::shared_ptr<DeviceRuntime> measured)
    : live_(std::move(live)),
      measured_(std::move(measured)),
      updates_(updates),
      reads_(live_->MakeStream()),
      beside_(live_->MakeStream()),
      copied_(live_->MakeEvent()),
      updated_(live_->MakeEvent()),
      copied_beside_(live_->MakeEvent()) {
  if (measured_ == nullptr) return;
  work_ = measured_ == live_ ? reads_ : measured_->MakeStream();
  begin_ = measured_->MakeTimedEvent();
  end_ = measured_->MakeTimedEvent();
}

void OrderedStream::Settle() {
  live_->Synchronize(live_->Current());
  if (updates_) live_->Synchronize(*updates_);
  if (measured_ != nullptr && measured_ != live_) measured_->Synchronize(measured_->Current());
}

void OrderedStream::Copy(const Tensors& destinations, const Tensors& sources) {
  const DeviceRuntime::Stream stream = Updates();
  live_->Copy(stream, destinations, sources);
  live_->Record(copied_, stream);
}

bool OrderedStream::CopyBeside(const Tensors& destinations, const Tensors& sources) {
  live_->Record(updated_, Updates());
  live_->Wait(beside_, updated_);
  live_->Copy(beside_, destinations, sources);
  live_->Record(copied_beside_, beside_);
  return true;
}

void OrderedStream::Gate() { live_->Wait(Updates(), copied_beside_); }

void OrderedStream::EnterMonitorThread() {
  live_->EnterThread(reads_);
  // Comes last: the measuring device must end up as the thread's current device.
  if (measured_ != nullptr && measured_ != live_) measured_->EnterThread(work_);
}

void OrderedStream::WaitForCopy() {
  // Blocks: queued, the wait for the trainer would count as work, and a reader on the CPU would
  // spin.
  if (measured_ != nullptr) ReadWork();
  FinishCopy();
  if (measured_ != nullptr) measured_->Record(begin_, work_);
  live_->Wait(reads_, copied_);
  live_->Wait(reads_, copied_beside_);
}

void OrderedStream::Drain() {
  live_->Synchronize(reads_);
  if (measured_ != nullptr && measured_ != live_) measured_->Synchronize(work_);
}

void OrderedStream::FinishCopy() noexcept {
  live_->SynchronizeEvent(copied_);
  live_->SynchronizeEvent(copied_beside_);
}

std::chrono::nanoseconds OrderedStream::WorkTime(const Clock& clock) noexcept {
  if (measured_ == nullptr) return clock.ThreadCpu();
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

void OrderedStream::ReadWork() {
  measured_->Record(end_, work_);
  measured_->SynchronizeEvent(end_);
  if (began_) worked_ += measured_->Between(begin_, end_);
  std::swap(begin_, end_);
  began_ = true;
}

std::optional<int64_t> OrderedStream::FreeBytes() {
  return measured_ == nullptr ? std::nullopt : std::optional(measured_->FreeBytes());
}

absl::Status OrderedStream::Fault() noexcept {
  absl::Status fault = live_->Fault();
  if (fault.ok() && measured_ != nullptr) fault = measured_->Fault();
  return fault;
}

}  // namespace ptqwatch::internal
