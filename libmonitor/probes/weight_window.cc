#include "probes/weight_window.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "base/status_macros.h"
#include "snapshot/average_weights.h"

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

std::vector<Replica::Override> WeightWindow::Mean() const {
  std::vector<std::vector<at::Tensor>> lists;
  for (const Kept& kept : snapshots_) lists.push_back(kept.weights);
  std::vector<at::Tensor> means = AverageWeights(lists);
  std::vector<Replica::Override> weights;
  for (size_t i = 0; i < entries_.size(); ++i) {
    weights.push_back({entries_[i], std::move(means[i])});
  }
  return weights;
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
  // Half of them updated would be no average: not counted until all are.
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
    // A copy also where the dtype is float64: the replica takes it over.
    weights.push_back({entries_[i], means_[i].to(dtype, /*non_blocking=*/false, /*copy=*/true)});
  }
  return weights;
}

}  // namespace ptqwatch::internal
