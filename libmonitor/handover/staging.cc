#include "handover/staging.h"

#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros.h"
#include "absl/cleanup/cleanup.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {

namespace {

std::vector<at::Tensor> Picked(const std::vector<at::Tensor>& tensors,
                               const std::vector<int>& which) {
  std::vector<at::Tensor> picked;
  for (int entry : which) picked.push_back(tensors[static_cast<size_t>(entry)]);
  return picked;
}

}  // namespace

FillOutcome FillOutcome::NotTaken(SnapshotResult result, double stall_seconds,
                                  std::string_view problem) noexcept {
  FillOutcome outcome;
  outcome.result = result;
  outcome.stall_seconds = stall_seconds;
  try {
    outcome.problem = problem;
  } catch (const std::bad_alloc&) {
  }
  return outcome;
}

Staging::Staging(const TensorTable& live, std::shared_ptr<DeviceStream> stream,
                 OptimizerStaging optimizer, bool beside, SharedSlot shared)
    : shared_(std::move(shared)),
      state_(shared_.state != nullptr ? shared_.state->slot : own_state_),
      index_(live.index),
      beside_(beside && shared_.state == nullptr),
      stream_(std::move(stream)),
      optimizer_(std::move(optimizer)) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < live.names.size(); ++i) {
    const at::Tensor& tensor = live.entries[static_cast<size_t>(live.index[i])].tensor;
    expected_.push_back(
        {live.names[i], tensor.sizes().vec(), tensor.scalar_type(), tensor.device()});
  }
  for (const TensorEntry& entry : live.entries) {
    if (shared_.state == nullptr) {
      // at::zeros rather than at::empty touches the pages here instead of inside the first OnStep.
      slot_.tensors.push_back(at::zeros(
          entry.tensor.sizes(),
          at::TensorOptions().dtype(entry.tensor.scalar_type()).device(entry.tensor.device())));
    }
    bytes_ += static_cast<int64_t>(entry.tensor.nbytes());
    std::vector<int>& kind = entry.is_parameter ? parameters_ : buffers_;
    kind.push_back(static_cast<int>(&entry - live.entries.data()));
  }
  if (shared_.state != nullptr) slot_.tensors = shared_.tensors;
  sources_.resize(live.entries.size());
  if (shared_.fill) return;
  // The first copy on a device loads code, which would delay the first OnStep.
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i] = live.entries[i].tensor;
  const absl::Status tried = Guard([this] { return CopyTensors(beside_).status(); });
  if (tried.ok() && beside_) stream_->Gate();
  ForgetSources();
  // The trial copy is queued on this thread's stream; the first real copy may use another one.
  stream_->Settle();
}

Staging::~Staging() { stream_->FinishCopy(); }

absl::Status Staging::Match(const std::vector<NamedTensor>& tensors) {
  const auto mismatch = [](const std::string& name, std::string_view what) {
    return absl::FailedPreconditionError(StrCat("tensor '", name, "' ", what));
  };
  size_t i = 0;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined()) continue;
    if (i >= expected_.size() || named.name != expected_[i].name) {
      return mismatch(named.name, "did not exist when the monitor was created");
    }
    const Expected& expected = expected_[i];
    if (named.tensor.sizes() != expected.sizes || named.tensor.scalar_type() != expected.dtype ||
        named.tensor.device() != expected.device) {
      return mismatch(named.name,
                      "changed its shape, dtype or device since the monitor was created");
    }
    if (!HasMemory(named.tensor))
      return mismatch(named.name, "has no memory, or less than it needs");
    at::Tensor& source = sources_[static_cast<size_t>(index_[i])];
    if (source.defined() && source.numel() > 0 &&
        source.const_data_ptr() != named.tensor.const_data_ptr()) {
      return mismatch(named.name, "is no longer tied to the same tensor");
    }
    source = named.tensor;
    ++i;
  }
  if (i != expected_.size()) return mismatch(expected_[i].name, "no longer exists");
  return absl::OkStatus();
}

void Staging::ForgetSources() noexcept {
  for (at::Tensor& source : sources_) source.reset();
}

absl::StatusOr<bool> Staging::CopyTensors(bool beside) {
  if (!beside) {
    stream_->Copy(slot_.tensors, sources_);
    return false;
  }
  if (!buffers_.empty()) stream_->Copy(Picked(slot_.tensors, buffers_), Picked(sources_, buffers_));
  return stream_->CopyBeside(Picked(slot_.tensors, parameters_), Picked(sources_, parameters_));
}

absl::StatusOr<bool> Staging::CopyLiveState(const Subject& subject, bool beside) {
  at::NoGradGuard no_grad;
  // References to live tensors must not outlast the copy, even if it fails.
  absl::Cleanup forget = [this] { ForgetSources(); };
  PTQWATCH_RETURN_IF_ERROR(Match(subject.LiveTensors()));
  PTQWATCH_ASSIGN_OR_RETURN(const bool pending, CopyTensors(beside));
  optimizer_.Fill(subject, *stream_, slot_.optimizer);
  if (shared_.send) shared_.send(slot_.optimizer);
  if (pending) std::move(forget).Cancel();
  return pending;
}

FillOutcome Staging::TryFill(const Subject& subject, const SnapshotHeader& header, Clock& clock,
                             bool last) noexcept {
  FillOutcome outcome;
  if (shared_.fill) {
    outcome = shared_.fill();
    if (outcome.result == SnapshotResult::kTaken &&
        !Accept(subject, header, outcome.stall_seconds)) {
      outcome.result = SnapshotResult::kSkippedBusy;
    }
    return outcome;
  }
  // From here on, another process leaves the slot's tensors alone.
  SlotState expected = SlotState::kFree;
  if (!state_.compare_exchange_strong(expected, SlotState::kPending, std::memory_order_acquire)) {
    outcome.result = SnapshotResult::kSkippedBusy;
    return outcome;
  }
  if (shared_.state != nullptr) shared_.state->taken.fetch_add(1, std::memory_order_relaxed);
  const auto begin = clock.Monotonic();
  const absl::StatusOr<bool> copied =
      Guard([&] { return CopyLiveState(subject, beside_ && !last); });
  outcome.stall_seconds = InSeconds(clock.Monotonic() - begin);
  if (!copied.ok()) {
    state_.store(SlotState::kFree, std::memory_order_release);
    // Only Match returns FailedPrecondition.
    return FillOutcome::NotTaken(absl::IsFailedPrecondition(copied.status())
                                     ? SnapshotResult::kSkippedMismatch
                                     : SnapshotResult::kFailed,
                                 outcome.stall_seconds, Message(copied.status()));
  }
  slot_.header = header;
  slot_.stall_seconds = outcome.stall_seconds;
  outcome.pending = *copied;
  outcome.result = SnapshotResult::kTaken;
  if (outcome.pending) return outcome;
  state_.store(shared_.state != nullptr ? SlotState::kSent : SlotState::kFilled,
               std::memory_order_release);
  return outcome;
}

bool Staging::Accept(const Subject& subject, const SnapshotHeader& header,
                     double stall_seconds) noexcept {
  if (state_.load(std::memory_order_acquire) != SlotState::kSent) return false;
  optimizer_.Fill(subject, *stream_, slot_.optimizer);
  slot_.header = header;
  slot_.stall_seconds = stall_seconds;
  state_.store(SlotState::kFilled, std::memory_order_release);
  return true;
}

absl::Status Staging::Gate() noexcept {
  const absl::Status status = Guard([this] {
    stream_->Gate();
    return absl::OkStatus();
  });
  ForgetSources();
  state_.store(status.ok() ? SlotState::kFilled : SlotState::kFree, std::memory_order_release);
  return status;
}

void Staging::Discard() noexcept {
  // The next copy must not overtake this one, even on another stream.
  (void)Guard([this] {
    stream_->Gate();
    return absl::OkStatus();
  });
  ForgetSources();
  state_.store(SlotState::kFree, std::memory_order_release);
}

const Snapshot* Staging::BeginLoading() noexcept {
  if (!filled()) return nullptr;
  // First, so that a snapshot that ends this process is known to have been begun.
  if (shared_.state != nullptr) shared_.state->begun = shared_.state->taken.load();
  SlotState filled = SlotState::kFilled;
  return state_.compare_exchange_strong(filled, SlotState::kLoading, std::memory_order_acquire)
             ? &slot_
             : nullptr;
}

void Staging::Published() noexcept {
  if (shared_.state != nullptr) shared_.state->done = shared_.state->begun.load();
}

}  // namespace ptqwatch::internal
