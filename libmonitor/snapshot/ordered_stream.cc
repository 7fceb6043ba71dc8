#include "snapshot/ordered_stream.h"

#include <utility>

namespace ptqwatch::internal {

OrderedStream::OrderedStream(std::shared_ptr<DeviceRuntime> live,
                             std::optional<DeviceRuntime::Stream> updates,
                             const std::shared_ptr<DeviceRuntime>& measured)
    : live_(std::move(live)),
      updates_(updates),
      reads_(live_->MakeStream()),
      beside_(live_->MakeStream()),
      copied_(live_->MakeEvent()),
      updated_(live_->MakeEvent()),
      copied_beside_(live_->MakeEvent()) {
  if (measured == nullptr) return;
  measured_.emplace(measured, measured == live_ ? reads_ : measured->MakeStream());
}

void OrderedStream::Settle() {
  live_->Synchronize(live_->Current());
  if (updates_) live_->Synchronize(*updates_);
  if (Elsewhere()) measured_->runtime().Synchronize(measured_->runtime().Current());
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
  if (Elsewhere()) measured_->Enter();
}

void OrderedStream::WaitForCopy() {
  // Blocks: a reader on the CPU would spin, and a queued wait for the trainer would count as work.
  FinishCopy();
  if (measured_) measured_->SkipIdleTime();
  live_->Wait(reads_, copied_);
  live_->Wait(reads_, copied_beside_);
}

void OrderedStream::Drain() {
  live_->Synchronize(reads_);
  if (Elsewhere()) measured_->Drain();
}

void OrderedStream::FinishCopy() noexcept {
  live_->SynchronizeEvent(copied_);
  live_->SynchronizeEvent(copied_beside_);
}

std::chrono::nanoseconds OrderedStream::WorkTime(const Clock& clock) noexcept {
  return measured_ ? measured_->WorkTime(clock) : clock.ThreadCpu();
}

std::optional<int64_t> OrderedStream::FreeBytes() {
  return measured_ ? std::optional(measured_->runtime().FreeBytes()) : std::nullopt;
}

absl::Status OrderedStream::Fault() noexcept {
  absl::Status fault = live_->Fault();
  if (fault.ok() && measured_) fault = measured_->runtime().Fault();
  return fault;
}

}  // namespace ptqwatch::internal
