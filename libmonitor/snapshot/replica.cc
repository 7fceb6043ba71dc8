#include "snapshot/replica.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "base/strings.h"
#include "snapshot/generator_guard.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kAlignmentBytes = 64;

// Equal to the last bit, NaN included.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

LossValues Detached(const LossValues& losses) {
  // Copies: a closure may return the same buffer every time.
  return {losses.values.defined() ? losses.values.detach().clone() : at::Tensor(),
          losses.weights.defined() ? losses.weights.detach().clone() : at::Tensor()};
}

}  // namespace

Replica::Lease::~Lease() {
  if (replica_ == nullptr) return;
  try {
    Restore();
  } catch (...) {
    // A destructor may run while another exception is on its way.
    replica_->damaged_ = true;
  }
  replica_->leased_ = false;
}

void Replica::Lease::Write(const Override& override) {
  at::NoGradGuard no_grad;
  const at::Tensor& tensor = replica_->table_.entries[static_cast<size_t>(override.entry)].tensor;
  ++replica_->generation_;
  tensor.copy_(override.value.reshape(tensor.sizes()));
  if (std::find(entries_.begin(), entries_.end(), override.entry) == entries_.end()) {
    entries_.push_back(override.entry);
  }
}

void Replica::Lease::Restore() {
  at::NoGradGuard no_grad;
  ++replica_->generation_;
  for (int entry : entries_) {
    replica_->table_.entries[static_cast<size_t>(entry)].tensor.copy_(replica_->loaded(entry));
  }
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(Subject* subject, const TensorTable& live,
                                                         const std::vector<const Batch*>& check) {
  at::NoGradGuard no_grad;
  std::vector<NamedTensor> tensors;
  {
    GeneratorGuard generators;
    try {
      if (absl::Status status = subject->BuildReplica(); !status.ok()) return status;
      tensors = subject->ReplicaTensors();
    } catch (const c10::Error& error) {
      return absl::FailedPreconditionError(
          StrCat("building the replica failed: ", error.what_without_backtrace()));
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(StrCat("building the replica failed: ", error.what()));
    }
  }
  absl::StatusOr<TensorTable> table = MakeTensorTable(tensors);
  if (!table.ok()) {
    return absl::FailedPreconditionError(
        StrCat("replica: ", std::string(table.status().message())));
  }
  if (absl::Status status = CheckSameLayout(live, *table); !status.ok()) return status;

  std::unique_ptr<Replica> replica(new Replica(subject, *std::move(table)));
  // The live weights, so that the check below sees a model that works.
  for (size_t i = 0; i < live.entries.size(); ++i) {
    replica->table_.entries[i].tensor.copy_(live.entries[i].tensor);
  }
  GeneratorGuard generators;
  std::vector<LossValues> before;
  for (const Batch* batch : check) {
    absl::StatusOr<LossValues> once = replica->Losses(*batch);
    if (!once.ok()) return once.status();
    const LossValues first = Detached(*once);
    absl::StatusOr<LossValues> twice = replica->Losses(*batch);
    if (!twice.ok()) return twice.status();
    if (generators.Moved()) {
      return absl::FailedPreconditionError(
          "losses draws random numbers from a default generator; that would change the training "
          "run (is dropout on, or a batch drawn inside?)");
    }
    if (!SameBits(first.values, twice->values) || !SameBits(first.weights, twice->weights)) {
      return absl::FailedPreconditionError(
          "losses gives different values for the same weights and the same batch");
    }
    before.push_back(first);
  }
  // What the handles pointed at is kept until after the check, and poisoned: a view of it that the
  // model or the closure still has would go on giving the old values.
  std::vector<at::Tensor> old;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.defined()) old.push_back(named.tensor.detach());
  }
  replica->MoveIntoFlatBuffers(tensors);
  for (at::Tensor& tensor : old) {
    if (at::isFloatingType(tensor.scalar_type())) {
      tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  for (size_t i = 0; i < check.size(); ++i) {
    absl::StatusOr<LossValues> after = replica->Losses(*check[i]);
    if (!after.ok()) return after.status();
    if (!SameBits(before[i].values, after->values)) {
      return absl::FailedPreconditionError(
          "losses does not depend on the replica's parameters alone: its value changed when they "
          "were moved to other memory (does the closure or the model keep a copy of a weight, or "
          "use the live model?)");
    }
  }
  std::vector<Override> changed;
  for (size_t i = 0; i < replica->table_.entries.size(); ++i) {
    const TensorEntry& entry = replica->table_.entries[i];
    if (entry.is_parameter && at::isFloatingType(entry.tensor.scalar_type())) {
      changed.push_back({static_cast<int>(i), entry.tensor * 1.5 + 0.01});
    }
  }
  for (size_t i = 0; i < check.size(); ++i) {
    const absl::StatusOr<Lease> lease = replica->Use(changed);
    absl::StatusOr<LossValues> other = replica->Losses(*check[i]);
    if (!other.ok()) return other.status();
    if (SameBits(before[i].values, other->values)) {
      return absl::FailedPreconditionError(
          "losses does not change with the replica's parameters (does the closure use the live "
          "model?)");
    }
  }
  return replica;
}

void Replica::MoveIntoFlatBuffers(const std::vector<NamedTensor>& tensors) {
  std::map<at::ScalarType, int64_t> elements;
  std::vector<int64_t> offsets;
  for (const TensorEntry& entry : table_.entries) {
    const int64_t alignment =
        std::max<int64_t>(1, kAlignmentBytes / static_cast<int64_t>(entry.tensor.element_size()));
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
    // The strides stay as they were, so that kernels take the same path.
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
  for (size_t i = 0; i < tensors.size(); ++i) loaded_[i].copy_(tensors[i]);
  for (auto& [working, loaded] : flat_) working.copy_(loaded);
  damaged_ = false;
}

absl::StatusOr<Replica::Lease> Replica::Use(absl::Span<const Override> overrides) {
  if (leased_) return absl::FailedPreconditionError("the replica's weights are in use already");
  if (damaged_) {
    return absl::FailedPreconditionError(
        "the snapshot's weights could not be put back after a measurement");
  }
  leased_ = true;
  // Buffers too: a closure that writes to one must not carry it into the next measurement.
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
  return Evaluate(batch);
}

absl::StatusOr<LossValues> Replica::LossesWithGraph(const Batch& batch) {
  at::AutoGradMode with_graph(true);
  return Evaluate(batch);
}

absl::StatusOr<LossValues> Replica::Evaluate(const Batch& batch) {
  try {
    LossValues losses = subject_->ReplicaLosses(batch);
    if (!losses.values.defined()) {
      return absl::FailedPreconditionError("losses returned an undefined tensor");
    }
    return losses;
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(StrCat("losses threw: ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::FailedPreconditionError(StrCat("losses threw: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(StrCat("losses threw: ", error.what()));
  } catch (...) {
    return absl::FailedPreconditionError("losses threw something that is no std::exception");
  }
}

}  // namespace ptqwatch::internal
