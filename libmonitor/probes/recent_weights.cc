#include "probes/recent_weights.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "snapshot/average_weights.h"
#include "snapshot/finite.h"

namespace ptqwatch::internal {

WeightWindow::WeightWindow(const Replica& replica, std::vector<int> entries)
    : replica_(replica), entries_(std::move(entries)) {
  for (int entry : entries_) {
    snapshot_bytes_ += static_cast<int64_t>(replica_.loaded(entry).nbytes());
  }
}

absl::Status WeightWindow::Add(int64_t step, size_t most,
                               const std::shared_ptr<ByteBudget>& bytes) {
  at::NoGradGuard no_grad;
  Kept kept;
  while (snapshots_.size() >= most) {
    kept = std::move(snapshots_.front());
    snapshots_.pop_front();
  }
  kept.step = step;
  if (kept.held == nullptr) {
    kept.held = std::make_unique<Reservation>(bytes);
    PTQWATCH_RETURN_IF_ERROR(kept.held->Take(snapshot_bytes_, "the weights of a snapshot"));
    for (int entry : entries_) kept.weights.push_back(replica_.loaded(entry).clone());
  } else {
    for (size_t i = 0; i < entries_.size(); ++i) {
      kept.weights[i].copy_(replica_.loaded(entries_[i]));
    }
  }
  snapshots_.push_back(std::move(kept));
  return absl::OkStatus();
}

void WeightWindow::DropFrom(int64_t step) {
  while (!snapshots_.empty() && snapshots_.back().step >= step) snapshots_.pop_back();
}

std::vector<Replica::Override> WeightWindow::Average(size_t newest,
                                                     absl::Span<const double> weights) const {
  std::vector<std::vector<at::Tensor>> lists;
  for (size_t i = size() - newest; i < size(); ++i) lists.push_back(snapshots_[i].weights);
  std::vector<at::Tensor> averages = AverageWeights(lists, weights);
  std::vector<Replica::Override> overrides;
  for (size_t i = 0; i < entries_.size(); ++i) {
    overrides.push_back({entries_[i], std::move(averages[i])});
  }
  return overrides;
}

ExponentialWeights::ExponentialWeights(const Replica& replica, std::vector<int> entries,
                                       double decay)
    : replica_(replica), entries_(std::move(entries)), decay_(decay) {
  constexpr int64_t kDouble = 8;
  for (int entry : entries_) bytes_ += kDouble * replica_.loaded(entry).numel();
}

absl::Status ExponentialWeights::Add(int64_t step, const std::shared_ptr<ByteBudget>& bytes) {
  if (snapshots_ == 0) {
    Clear();
    auto held = std::make_unique<Reservation>(bytes);
    PTQWATCH_RETURN_IF_ERROR(held->Take(bytes_, "an exponential average of the weights"));
    held_ = std::move(held);
    first_step_ = step;
    means_.resize(entries_.size());
  }
  // A partly updated average is invalid, so it counts as empty until the loop is done.
  const int64_t before = std::exchange(snapshots_, 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    AddToExponential(replica_.loaded(entries_[i]), decay_, means_[i]);
  }
  snapshots_ = before + 1;
  newest_step_ = step;
  return absl::OkStatus();
}

void ExponentialWeights::DropFrom(int64_t step) {
  if (snapshots_ > 0 && newest_step_ >= step) Clear();
}

void ExponentialWeights::Clear() {
  snapshots_ = 0;
  means_.clear();
  held_.reset();
}

std::vector<Replica::Override> ExponentialWeights::Mean() const {
  std::vector<Replica::Override> weights;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const at::ScalarType dtype = replica_.loaded(entries_[i]).scalar_type();
    // Copies even float64, because the replica takes the tensor over.
    weights.push_back({entries_[i], means_[i].to(dtype, /*non_blocking=*/false, /*copy=*/true)});
  }
  return weights;
}

RecentWeights::RecentWeights(const Replica& replica, const AveragingOptions& options)
    : replica_(replica),
      options_(options),
      entries_(FloatingParameters(replica.table())),
      fitting_(static_cast<size_t>(options.window)),
      window_(replica, entries_) {
  if (options_.decay > 0) exponential_.emplace(replica, entries_, options_.decay);
}

void RecentWeights::SetAside(int64_t measuring_bytes, int64_t kept_bytes) {
  measuring_bytes_ = measuring_bytes;
  kept_bytes_ = kept_bytes;
}

size_t RecentWeights::Fitting(int64_t remaining) const {
  int64_t fitting = static_cast<int64_t>(window_.size());
  int64_t room = remaining - measuring_bytes_;
  for (; fitting > 0 && room < 0; --fitting) room += window_.snapshot_bytes();
  for (; fitting < options_.window && room >= window_.snapshot_bytes(); ++fitting) {
    room -= window_.snapshot_bytes();
  }
  return static_cast<size_t>(fitting);
}

size_t RecentWeights::FittingIn(int64_t available) const {
  return Fitting(std::min(available, INT64_MAX - kept_bytes_) + kept_bytes_);
}

void RecentWeights::Take(int64_t step, bool regular, const ExecutionContext& context) {
  // A rollback invalidates the newer weights. Only a regular snapshot replaces that of its own
  // step: Finish may measure the last step a second time.
  const int64_t undone = regular ? step : step + 1;
  window_.DropFrom(undone);
  if (exponential_) exponential_->DropFrom(undone);
  fitting_ = Fitting(context.bytes->remaining());
  while (window_.size() > fitting_) window_.DropOldest();
  if (!regular || seen_++ % options_.spacing != 0) return;
  problem_ = Guard([&] { return TakeFinite(step, context); });
}

absl::Status RecentWeights::TakeFinite(int64_t step, const ExecutionContext& context) {
  // A value that is not finite would stay in every average that includes it.
  if (!CheckFinite(replica_.table(), entries_).ok()) return absl::OkStatus();
  if (fitting_ > 0) {
    const absl::Status taken = window_.Add(step, fitting_, context.bytes);
    if (!taken.ok() && !absl::IsResourceExhausted(taken)) return taken;
  }
  if (!exponential_) return absl::OkStatus();
  if (exponential_->snapshots() == 0 &&
      context.bytes->remaining() - measuring_bytes_ < exponential_->bytes()) {
    return absl::OkStatus();
  }
  const absl::Status taken = exponential_->Add(step, context.bytes);
  return absl::IsResourceExhausted(taken) ? absl::OkStatus() : taken;
}

void RecentWeights::Clear() {
  window_.Clear();
  if (exponential_) exponential_->Clear();
}

}  // namespace ptqwatch::internal
