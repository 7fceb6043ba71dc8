#include "staging/slot_filler.h"

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

SlotFiller::SlotFiller(const TensorTable& live, Slot* slot, std::shared_ptr<DeviceStream> stream,
                       OptimizerStaging optimizer, bool beside)
    : slot_(*slot),
      index_(live.index),
      beside_(beside),
      stream_(std::move(stream)),
      optimizer_(std::move(optimizer)) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < live.names.size(); ++i) {
    const at::Tensor& tensor = live.entries[static_cast<size_t>(live.index[i])].tensor;
    expected_.push_back({live.names[i], tensor.sizes().vec(), tensor.scalar_type(), tensor.device(),
                         live.places[i]});
  }
  for (const TensorEntry& entry : live.entries) {
    std::vector<int>& kind = entry.is_parameter ? parameters_ : buffers_;
    kind.push_back(static_cast<int>(&entry - live.entries.data()));
    sources_.push_back(entry.tensor);
  }
  // The first copy on a device loads code, which would delay the first OnStep.
  const absl::Status tried = Guard([this] { return CopyTensors(beside_).status(); });
  if (tried.ok() && beside_) stream_->Gate();
  ForgetSources();
  // The trial copy is queued on this thread's stream; the first real copy may use another one.
  stream_->Settle();
}

SlotFiller::~SlotFiller() { stream_->FinishCopy(); }

absl::Status SlotFiller::Match(const std::vector<NamedTensor>& tensors) {
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
    if (named.global_shape != expected.place.global_shape ||
        named.offset != expected.place.offset) {
      return mismatch(named.name, "is another part of the whole than when the monitor was created");
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

void SlotFiller::ForgetSources() noexcept {
  for (at::Tensor& source : sources_) source.reset();
}

absl::StatusOr<bool> SlotFiller::CopyTensors(bool beside) {
  if (!beside) {
    stream_->Copy(slot_.claimed().tensors, sources_);
    return false;
  }
  if (!buffers_.empty())
    stream_->Copy(Picked(slot_.claimed().tensors, buffers_), Picked(sources_, buffers_));
  return stream_->CopyBeside(Picked(slot_.claimed().tensors, parameters_),
                             Picked(sources_, parameters_));
}

absl::StatusOr<bool> SlotFiller::CopyLiveState(const Subject& subject, bool beside) {
  at::NoGradGuard no_grad;
  // References to live tensors must not outlast the copy, even if it fails.
  absl::Cleanup forget = [this] { ForgetSources(); };
  PTQWATCH_RETURN_IF_ERROR(Match(subject.LiveTensors()));
  PTQWATCH_ASSIGN_OR_RETURN(const bool pending, CopyTensors(beside));
  optimizer_.Fill(*stream_, slot_.claimed().optimizer);
  if (share_) share_(slot_.claimed().optimizer);
  if (pending) std::move(forget).Cancel();
  return pending;
}

FillOutcome SlotFiller::TryFill(const Subject& subject, const SnapshotHeader& header, Clock& clock,
                                bool last) noexcept {
  FillOutcome outcome;
  SlotPage& page = slot_.page();
  if (!page.Claim()) {
    outcome.result = SnapshotResult::kSkippedBusy;
    return outcome;
  }
  const auto begin = clock.Monotonic();
  const absl::StatusOr<bool> copied =
      Guard([&] { return CopyLiveState(subject, beside_ && !last); });
  outcome.stall_seconds = InSeconds(clock.Monotonic() - begin);
  if (!copied.ok()) {
    page.Abandon();
    // Only Match returns FailedPrecondition.
    return FillOutcome::NotTaken(absl::IsFailedPrecondition(copied.status())
                                     ? SnapshotResult::kSkippedMismatch
                                     : SnapshotResult::kFailed,
                                 outcome.stall_seconds, Message(copied.status()));
  }
  page.header = header;
  page.stall_seconds = outcome.stall_seconds;
  pending_ = outcome.pending = *copied;
  outcome.result = SnapshotResult::kTaken;
  if (!pending_) page.Offer();
  return outcome;
}

absl::Status SlotFiller::Gate() noexcept {
  const absl::Status status = Guard([this] {
    stream_->Gate();
    return absl::OkStatus();
  });
  ForgetSources();
  pending_ = false;
  status.ok() ? slot_.page().Offer() : slot_.page().Abandon();
  return status;
}

void SlotFiller::Discard() noexcept {
  // The next copy must not overtake this one, even on another stream.
  (void)Guard([this] {
    stream_->Gate();
    return absl::OkStatus();
  });
  ForgetSources();
  pending_ = false;
  slot_.page().Abandon();
}

std::vector<at::Tensor> MakeSlotTensors(const TensorTable& live) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const TensorEntry& entry : live.entries) {
    // at::zeros rather than at::empty touches the pages here instead of inside the first OnStep.
    tensors.push_back(at::zeros(
        entry.tensor.sizes(),
        at::TensorOptions().dtype(entry.tensor.scalar_type()).device(entry.tensor.device())));
  }
  return tensors;
}

}  // namespace ptqwatch::internal
