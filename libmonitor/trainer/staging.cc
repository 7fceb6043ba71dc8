#include "trainer/staging.h"

#include <exception>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros.h"
#include "absl/cleanup/cleanup.h"
#include "base/strings.h"

namespace ptqwatch::internal {

Staging::Staging(const TensorTable& live, std::shared_ptr<DeviceStream> stream,
                 OptimizerStaging optimizer)
    : index_(live.index), stream_(std::move(stream)), optimizer_(std::move(optimizer)) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < live.names.size(); ++i) {
    const at::Tensor& tensor = live.entries[static_cast<size_t>(live.index[i])].tensor;
    expected_.push_back(
        {live.names[i], tensor.sizes().vec(), tensor.scalar_type(), tensor.device()});
  }
  for (const TensorEntry& entry : live.entries) {
    // zeros, not empty: the pages are touched here rather than inside the first OnStep.
    slot_.tensors.push_back(at::zeros(
        entry.tensor.sizes(),
        at::TensorOptions().dtype(entry.tensor.scalar_type()).device(entry.tensor.device())));
    bytes_ += static_cast<int64_t>(entry.tensor.nbytes());
  }
  sources_.resize(live.entries.size());
  // The zeros are queued on this thread's stream, the first copy over them perhaps on another.
  stream_->Settle();
}

Staging::~Staging() { stream_->FinishCopy(); }

std::string Staging::Compare(const std::vector<NamedTensor>& tensors) {
  size_t i = 0;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined()) continue;
    if (i >= expected_.size() || named.name != expected_[i].name) {
      return StrCat("tensor '", named.name, "' was not there when the monitor was created");
    }
    const Expected& expected = expected_[i];
    if (named.tensor.sizes() != expected.sizes || named.tensor.scalar_type() != expected.dtype ||
        named.tensor.device() != expected.device) {
      return StrCat("tensor '", named.name,
                    "' changed its shape, dtype or device since the monitor was created");
    }
    at::Tensor& source = sources_[static_cast<size_t>(index_[i])];
    if (source.defined() && source.numel() > 0 &&
        source.const_data_ptr() != named.tensor.const_data_ptr()) {
      return StrCat("tensor '", named.name, "' is no longer tied to the one it was tied to");
    }
    source = named.tensor;
    ++i;
  }
  if (i != expected_.size()) return StrCat("tensor '", expected_[i].name, "' is gone");
  return "";
}

SnapshotResult Staging::TryFill(const Subject& subject, const Snapshot& header,
                                Clock& clock) noexcept {
  if (!free()) return SnapshotResult::kSkippedBusy;
  const auto begin = clock.Monotonic();
  try {
    at::NoGradGuard no_grad;
    // References to live tensors must not outlast this call, however it ends.
    absl::Cleanup forget = [this] {
      for (at::Tensor& source : sources_) source.reset();
    };
    problem_ = Compare(subject.LiveTensors());
    if (!problem_.empty()) return SnapshotResult::kSkippedMismatch;
    stream_->Copy(slot_.tensors, sources_);
    optimizer_.Fill(subject, *stream_, slot_.optimizer);
  } catch (const c10::Error& error) {
    problem_ = error.what_without_backtrace();
    return SnapshotResult::kFailed;
  } catch (const std::exception& error) {
    problem_ = error.what();
    return SnapshotResult::kFailed;
  } catch (...) {
    problem_ = "unknown exception";
    return SnapshotResult::kFailed;
  }
  slot_.info = header.info;
  slot_.lr = header.lr;
  slot_.trigger = header.trigger;
  slot_.unix_seconds = header.unix_seconds;
  slot_.stall_seconds = std::chrono::duration<double>(clock.Monotonic() - begin).count();
  state_.store(State::kFilled, std::memory_order_release);
  return SnapshotResult::kTaken;
}

const Snapshot* Staging::BeginLoading() noexcept {
  State filled = State::kFilled;
  return state_.compare_exchange_strong(filled, State::kLoading, std::memory_order_acquire)
             ? &slot_
             : nullptr;
}

}  // namespace ptqwatch::internal
