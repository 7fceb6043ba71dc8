#include "snapshot/replica.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/add.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/batches.h"
#include "snapshot/device_runtime.h"
#include "snapshot/finite.h"
#include "snapshot/generator_guard.h"
#include "snapshot/loss_difference.h"
#include "snapshot/memory_meter.h"
#include "snapshot/move_to_device.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {
namespace {

// The allocators' alignment on the host and on CUDA. Libraries choose kernels by it.
int64_t AlignmentBytes(at::Device device) { return device.is_cuda() ? 512 : 64; }

// Returns FailedPrecondition for the first entry whose bits differ from `before`.
absl::Status CheckUnchanged(const TensorTable& table, const std::vector<at::Tensor>& before) {
  for (size_t i = 0; i < before.size(); ++i) {
    const TensorEntry& entry = table.entries[i];
    if (SameBits(entry.tensor, before[i])) continue;
    return absl::FailedPreconditionError(
        StrCat("losses changes the replica's ", entry.is_parameter ? "parameter '" : "buffer '",
               entry.name,
               "', which it may only read (is batch norm in training mode, or does the model write "
               "to it when it is evaluated?)"));
  }
  return absl::OkStatus();
}

LossValues Detached(const LossValues& losses) {
  // Copies, because a closure may return the same buffer every time.
  return {losses.values.defined() ? losses.values.detach().clone() : at::Tensor(),
          losses.weights.defined() ? losses.weights.detach().clone() : at::Tensor()};
}

// Returns whether all losses are masked out or 0, as cross entropy gives for ignored targets.
bool AreBlank(const LossValues& losses) {
  const at::Tensor& values = losses.values;
  if (!losses.weights.defined() || losses.weights.sizes() != values.sizes()) {
    return !(values != 0).any().item<bool>();
  }
  return !(values != 0).logical_and(losses.weights != 0).any().item<bool>();
}

// Builds the subject's replica and lists its tensors. Leaves the default generators unchanged.
absl::StatusOr<std::vector<NamedTensor>> BuildTensors(Subject& subject) {
  GeneratorGuard generators;
  return Guard("building the replica failed", absl::StatusCode::kFailedPrecondition,
               [&]() -> absl::StatusOr<std::vector<NamedTensor>> {
                 PTQWATCH_RETURN_IF_ERROR(subject.BuildReplica());
                 return subject.ReplicaTensors();
               });
}

// Further handles to the memory of `tensors`. They keep it when the original handles are moved.
std::vector<at::Tensor> DetachedFrom(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> detached;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.defined()) detached.push_back(named.tensor.detach());
  }
  return detached;
}

}  // namespace

// The shift varies by element: softmax does not see a constant shift of an output head of zeros,
// with which many trainers begin.
at::Tensor Perturbed(const at::Tensor& weights) {
  // In float16 the numbers of a large weight's elements would be infinite.
  const at::Tensor shift =
      at::arange(weights.numel(), weights.options().dtype(at::kFloat)).remainder(7).sub(3);
  return weights * 1.5 + (0.01 * shift).to(weights.scalar_type()).view(weights.sizes());
}

Replica::Lease::~Lease() {
  if (replica_ == nullptr) return;
  try {
    Restore();
  } catch (...) {
    // The destructor may run while another exception propagates.
    replica_->damaged_ = true;
  }
  replica_->leased_ = false;
}

void Replica::Lease::Write(const Override& override) {
  at::NoGradGuard no_grad;
  const at::Tensor tensor = Overridden(override.entry);
  tensor.copy_(override.value.reshape(tensor.sizes()));
}

void Replica::Lease::Move(int entry, const at::Tensor& direction, double scale) {
  at::NoGradGuard no_grad;
  at::Tensor tensor = Overridden(entry);
  at::add_out(tensor, replica_->loaded(entry), direction, scale);
}

at::Tensor Replica::Lease::Overridden(int entry) {
  ++replica_->generation_;
  if (std::find(entries_.begin(), entries_.end(), entry) == entries_.end()) {
    entries_.push_back(entry);
  }
  return replica_->Working(entry);
}

void Replica::Lease::Restore() {
  at::NoGradGuard no_grad;
  ++replica_->generation_;
  for (int entry : entries_) {
    replica_->Working(entry).copy_(replica_->loaded(entry));
  }
}

Replica::StandIn::~StandIn() {
  if (replica_ == nullptr) return;
  try {
    Exchange();
  } catch (...) {
    replica_->damaged_ = true;
  }
  replica_->replaced_ = false;
}

void Replica::StandIn::Exchange() {
  at::NoGradGuard no_grad;
  ++replica_->generation_;
  // Swaps the handles first, which cannot fail: the loaded values are then right whatever follows.
  for (Override& value : values_) {
    std::swap(replica_->loaded_[static_cast<size_t>(value.entry)], value.value);
  }
  for (const Override& value : values_) {
    replica_->table_.entries[static_cast<size_t>(value.entry)].tensor.copy_(
        replica_->loaded(value.entry));
  }
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(Subject* subject, const TensorTable& live,
                                                         std::vector<const Batch*> check,
                                                         std::optional<at::Device> device,
                                                         absl::Span<const Batch> more) {
  at::NoGradGuard no_grad;
  const at::Device where = device.value_or(live.entries[0].tensor.device());
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, BuildTensors(*subject));
  PTQWATCH_RETURN_IF_ERROR(CheckOwnMemory(tensors, live, where));
  PTQWATCH_RETURN_IF_ERROR(Guard(StrCat("moving the replica to ", where.str(), " failed"),
                                 absl::StatusCode::kFailedPrecondition, [&] {
                                   MoveToDevice(tensors, where);
                                   return absl::OkStatus();
                                 }));
  absl::StatusOr<TensorTable> table = MakeTensorTable(tensors);
  if (!table.ok()) {
    return absl::FailedPreconditionError(StrCat("replica: ", table.status()));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckSameLayout(live, *table));
  std::unique_ptr<Replica> replica(new Replica(subject, *std::move(table)));
  // Loads the live weights, so the checks below run on a working model.
  std::vector<at::Tensor> loaded;
  for (size_t i = 0; i < live.entries.size(); ++i) {
    loaded.push_back(live.entries[i].tensor);
    replica->table_.entries[i].tensor.copy_(loaded.back());
  }
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<LossValues> before,
                            replica->CheckRepeatable(check, loaded));
  if (AreBlank(before[0])) {
    PTQWATCH_ASSIGN_OR_RETURN(check.emplace_back(), replica->FirstWithLosses(more));
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<LossValues> added,
                              replica->CheckRepeatable({check.back()}, loaded));
    before.push_back(added[0]);
  }
  // Keeps the old memory until after the check and fills it with NaN: a view that the model or the
  // closure still holds would otherwise return the old values.
  const std::vector<at::Tensor> old = DetachedFrom(tensors);
  replica->MoveIntoFlatBuffers(tensors);
  for (const at::Tensor& tensor : old) {
    if (at::isFloatingType(tensor.scalar_type())) {
      tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  PTQWATCH_RETURN_IF_ERROR(replica->CheckUsesOwnWeights(check, before));
  return replica;
}

absl::StatusOr<const Batch*> Replica::FirstWithLosses(absl::Span<const Batch> batches) {
  for (const Batch& batch : batches) {
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, Losses(batch));
    if (!AreBlank(losses)) return &batch;
  }
  return absl::FailedPreconditionError(
      StrCat("all losses of ",
             batches.size() > 1 ? StrCat("the ", batches.size(), " batches") : "the batch",
             " are masked out or 0, or there are none: nothing can be measured"));
}

// Returns the losses of each batch. `before` has the tensors from before the first evaluation.
absl::StatusOr<std::vector<LossValues>> Replica::CheckRepeatable(
    const std::vector<const Batch*>& check, const std::vector<at::Tensor>& before) {
  const GeneratorGuard generators;
  std::vector<LossValues> losses;
  double largest = 0;
  for (const Batch* batch : check) {
    const MemoryMeter meter;
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues once, Losses(*batch));
    const LossValues first = Detached(once);
    forward_bytes_ = std::max(forward_bytes_, meter.peak());
    PTQWATCH_RETURN_IF_ERROR(CheckFiniteLosses(first, *batch, table_));
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues twice, Losses(*batch));
    if (generators.Seeded()) {
      return absl::FailedPreconditionError(
          "losses seeds a default random generator; that would change the training run");
    }
    const double difference = std::max(LossDifference(first.values, twice.values),
                                       LossDifference(first.weights, twice.weights));
    if (difference > LossTolerance(device())) {
      const absl::Status untouched = CheckUnchanged(table_, before);
      return absl::FailedPreconditionError(
          StrCat("losses gives different values for the same weights and the same batch",
                 untouched.ok() ? "" : StrCat(": ", untouched)));
    }
    largest = std::max(largest, difference);
    losses.push_back(first);
  }
  if (largest > 0) {
    Log(Severity::kWarning,
        StrFormat("losses differs by up to %.1g from one evaluation of a batch to the next (atomic "
                  "additions on the GPU?): reports repeat to that accuracy, not to the bit",
                  largest));
  }
  return losses;
}

// `before` has the losses from before the weights were moved.
absl::Status Replica::CheckUsesOwnWeights(const std::vector<const Batch*>& check,
                                          const std::vector<LossValues>& before) {
  for (size_t i = 0; i < check.size(); ++i) {
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues after, Losses(*check[i]));
    if (LossDifference(before[i].values, after.values) > LossTolerance(device())) {
      return absl::FailedPreconditionError(
          "losses does not depend on the replica's parameters alone: its value changed when they "
          "were moved to other memory (does the closure or the model keep a copy of a weight, or "
          "use the live model?)");
    }
  }
  // Buffers that the model filled at the first evaluation (a cache) have been loaded.
  PTQWATCH_RETURN_IF_ERROR(CheckUnchanged(table_, loaded_));
  for (size_t i = 0; i < check.size(); ++i) {
    PTQWATCH_ASSIGN_OR_RETURN(Lease lease, Use({}));
    for (size_t k = 0; k < table_.entries.size(); ++k) {
      const TensorEntry& entry = table_.entries[k];
      if (entry.is_parameter && at::isFloatingType(entry.tensor.scalar_type())) {
        lease.Write({static_cast<int>(k), Perturbed(entry.tensor)});
      }
    }
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues other, Losses(*check[i]));
    if (LossDifference(before[i].weights, other.weights) > LossTolerance(device())) {
      return absl::FailedPreconditionError(
          "LossValues::weights changes with the replica's parameters, so that losses with and "
          "without quantization would be means over other tokens; it must depend on the batch "
          "alone");
    }
    if (AreBlank(before[i])) continue;
    if (LossDifference(before[i].values, other.values) <= LossTolerance(device())) {
      return absl::FailedPreconditionError(
          "losses does not change with the replica's parameters (does the closure use the live "
          "model?)");
    }
  }
  return absl::OkStatus();
}

void Replica::MoveIntoFlatBuffers(const std::vector<NamedTensor>& tensors) {
  std::map<at::ScalarType, int64_t> elements;
  std::vector<int64_t> offsets;
  for (const TensorEntry& entry : table_.entries) {
    const int64_t alignment =
        std::max<int64_t>(1, AlignmentBytes(entry.tensor.device()) /
                                 static_cast<int64_t>(entry.tensor.element_size()));
    int64_t& used = elements[entry.tensor.scalar_type()];
    offsets.push_back(used);
    used += (entry.tensor.numel() + alignment - 1) / alignment * alignment;
  }
  std::map<at::ScalarType, size_t> buffer_of;
  for (const auto& [dtype, count] : elements) {
    const auto options = at::TensorOptions().dtype(dtype).device(device());
    buffer_of[dtype] = flat_.size();
    flat_.emplace_back(at::zeros({count}, options), at::zeros({count}, options));
  }
  std::vector<at::Tensor> working;
  for (size_t i = 0; i < table_.entries.size(); ++i) {
    const at::Tensor& tensor = table_.entries[i].tensor;
    auto& [work, loaded] = flat_[buffer_of[tensor.scalar_type()]];
    // Keeps the strides, so kernels take the same path.
    working.push_back(work.as_strided(tensor.sizes(), tensor.strides(), offsets[i]));
    loaded_.push_back(loaded.as_strided(tensor.sizes(), tensor.strides(), offsets[i]));
    working.back().copy_(tensor);
    loaded_.back().copy_(tensor);
  }
  size_t listed = 0;
  leaves_.resize(table_.entries.size());
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined()) continue;
    const auto entry = static_cast<size_t>(table_.index[listed++]);
    at::Tensor handle = named.tensor;
    handle.set_data(working[entry]);
    std::vector<at::Tensor>& leaves = leaves_[entry];
    if (std::none_of(leaves.begin(), leaves.end(),
                     [&](const at::Tensor& leaf) { return leaf.is_same(handle); })) {
      leaves.push_back(handle);
    }
  }
  for (size_t i = 0; i < working.size(); ++i) table_.entries[i].tensor = working[i];
}

void Replica::Load(const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  ++generation_;
  for (size_t i = 0; i < tensors.size(); ++i) CopyAcross(loaded_[i], tensors[i]);
  for (auto& [working, loaded] : flat_) working.copy_(loaded);
  damaged_ = false;
}

absl::Status Replica::CheckFree() const {
  if (leased_) return absl::FailedPreconditionError("the replica's weights are in use already");
  if (damaged_) {
    return absl::FailedPreconditionError(
        "the snapshot's weights could not be put back after a measurement");
  }
  return absl::OkStatus();
}

absl::StatusOr<Replica::StandIn> Replica::Replace(std::vector<Override> values) {
  PTQWATCH_RETURN_IF_ERROR(CheckFree());
  if (replaced_)
    return absl::FailedPreconditionError("the snapshot's weights are replaced already");
  replaced_ = true;
  StandIn stand_in(this, std::move(values));
  stand_in.Exchange();
  return stand_in;
}

absl::StatusOr<Replica::Lease> Replica::Use(absl::Span<const Override> overrides) {
  PTQWATCH_RETURN_IF_ERROR(CheckFree());
  leased_ = true;
  // Includes buffers: a closure's write to a buffer must not leak into the next measurement.
  std::vector<int> entries;
  for (size_t i = 0; i < table_.entries.size(); ++i) {
    if (!table_.entries[i].is_parameter) entries.push_back(static_cast<int>(i));
  }
  Lease lease(this, std::move(entries));
  for (const Override& override : overrides) lease.Write(override);
  return lease;
}

void Replica::SetDifferentiable(absl::Span<const int> entries) {
  for (std::vector<at::Tensor>& leaves : leaves_) {
    for (at::Tensor& leaf : leaves) {
      if (at::isFloatingType(leaf.scalar_type())) leaf.requires_grad_(false);
    }
  }
  for (int entry : entries) {
    for (at::Tensor& leaf : leaves_[static_cast<size_t>(entry)]) leaf.requires_grad_(true);
  }
}

absl::StatusOr<LossValues> Replica::Losses(const Batch& batch) {
  at::NoGradGuard no_grad;
  absl::StatusOr<LossValues> evaluated = Evaluate(batch);
  if (const std::string_view message = Message(evaluated.status());
      message.find("does not require grad") != std::string_view::npos) {
    return absl::FailedPreconditionError(
        StrCat(message,
               "\nlosses runs without gradients: one that takes a gradient itself does so under "
               "torch.enable_grad(), in C++ at::AutoGradMode"));
  }
  return evaluated;
}

absl::StatusOr<LossValues> Replica::LossesWithGraph(const Batch& batch) {
  at::AutoGradMode with_graph(true);
  return Evaluate(batch);
}

absl::StatusOr<LossValues> Replica::Evaluate(const Batch& batch) {
  absl::StatusOr<LossValues> evaluated = Guard(
      "losses threw", absl::StatusCode::kFailedPrecondition, [&]() -> absl::StatusOr<LossValues> {
        const OwnDraws draws;
        LossValues losses = subject_->ReplicaLosses(batch);
        if (const std::string part = subject_->ReplicaInTraining(); !part.empty()) {
          return absl::FailedPreconditionError(
              StrCat("losses leaves ", part,
                     " in training mode, in which dropout and batch norm give other losses than "
                     "those of the trained model; it must not call train()"));
        }
        if (draws.drew()) {
          return absl::FailedPreconditionError(
              "losses draws random numbers from a default generator; that would change "
              "the training run (is dropout on, or a batch drawn inside?)");
        }
        if (!losses.values.defined()) {
          return absl::FailedPreconditionError("losses returned an undefined tensor");
        }
        return losses;
      });
  if (evaluated.ok()) return evaluated;
  return absl::Status(evaluated.status().code(),
                      StrCat(evaluated.status(), "; the batch was ", DescribeBatch(batch)));
}

}  // namespace ptqwatch::internal
