#include "snapshot/tensor_table.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ATen/EmptyTensor.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// The address range of a dense (possibly permuted) tensor.
std::pair<const char*, const char*> Range(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes()};
}

absl::Status CheckOverlaps(const std::vector<TensorEntry>& entries) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& entry : entries) {
    if (entry.tensor.numel() > 0) sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return Range(a->tensor).first < Range(b->tensor).first;
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->tensor.device() == sorted[i]->tensor.device() &&
        Range(sorted[i - 1]->tensor).second > Range(sorted[i]->tensor).first) {
      return absl::FailedPreconditionError(
          StrCat("tensors '", sorted[i - 1]->name, "' and '", sorted[i]->name,
                 "' share a part of their memory; only whole tensors may be tied"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<at::ScalarType> RoundingType(std::string_view name) {
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  return std::nullopt;
}

at::ScalarType CopiedType(const TensorTable& table, const TensorEntry& entry) {
  const at::ScalarType type = entry.tensor.scalar_type();
  return entry.is_parameter && type == at::kFloat ? table.rounding.value_or(type) : type;
}

at::ScalarType OriginalType(const TensorTable& table, const TensorEntry& entry) {
  const at::ScalarType type = entry.tensor.scalar_type();
  return entry.is_parameter && type == table.rounding ? at::kFloat : type;
}

bool HasMemory(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  if (!tensor.has_storage()) return false;
  const c10::Storage& storage = tensor.storage();
  const size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                       static_cast<size_t>(tensor.storage_offset()));
  return storage.data() != nullptr && storage.nbytes() >= needed;
}

std::vector<int> FloatingParameters(const TensorTable& table) {
  std::vector<int> entries;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const TensorEntry& entry = table.entries[i];
    if (entry.is_parameter && at::isFloatingType(entry.tensor.scalar_type())) {
      entries.push_back(static_cast<int>(i));
    }
  }
  return entries;
}

std::string ShapeText(const at::Tensor& tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", tensor.size(i));
  }
  return text + "]";
}

int64_t TensorTable::parameters() const {
  int64_t count = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.is_parameter) count += entry.tensor.numel();
  }
  return count;
}

int64_t TensorTable::bytes() const {
  int64_t count = 0;
  for (const TensorEntry& entry : entries) count += static_cast<int64_t>(entry.tensor.nbytes());
  return count;
}

absl::StatusOr<TensorTable> MakeTensorTable(const std::vector<NamedTensor>& tensors, Parts parts) {
  TensorTable table;
  std::unordered_map<const void*, int> by_impl;
  std::unordered_map<const void*, int> by_address;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined()) continue;
    const at::Tensor& tensor = named.tensor;
    if (parts == Parts::kRefused && !named.global_shape.empty()) {
      return absl::FailedPreconditionError(StrCat(
          "tensor '", named.name,
          "' is a part of one that is sharded over ranks; only a monitor in a process of its own "
          "measures such a model: MonitorOptions.process, in Python mode='process'"));
    }
    if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense()) {
      return absl::FailedPreconditionError(
          StrCat("tensor '", named.name, "' is not a dense, strided tensor"));
    }
    if (!HasMemory(tensor)) {
      return absl::FailedPreconditionError(StrCat("tensor '", named.name, "' of shape ",
                                                  ShapeText(tensor),
                                                  " has no memory, or less than it needs"));
    }
    int entry = -1;
    if (auto found = by_impl.find(tensor.unsafeGetTensorImpl()); found != by_impl.end()) {
      entry = found->second;
    } else if (tensor.numel() > 0) {
      if (auto same = by_address.find(tensor.const_data_ptr()); same != by_address.end()) {
        const at::Tensor& other = table.entries[static_cast<size_t>(same->second)].tensor;
        if (other.sizes() == tensor.sizes() && other.strides() == tensor.strides() &&
            other.dtype() == tensor.dtype()) {
          entry = same->second;
        }
      }
    }
    if (entry < 0) {
      entry = static_cast<int>(table.entries.size());
      table.entries.push_back({named.name, {}, named.is_parameter, tensor});
    } else {
      TensorEntry& canonical = table.entries[static_cast<size_t>(entry)];
      canonical.aliases.push_back(named.name);
      canonical.is_parameter |= named.is_parameter;
    }
    by_impl.emplace(tensor.unsafeGetTensorImpl(), entry);
    if (tensor.numel() > 0) by_address.emplace(tensor.const_data_ptr(), entry);
    table.names.push_back(named.name);
    table.places.push_back({named.global_shape, named.offset});
    table.index.push_back(entry);
  }
  if (parts == Parts::kRefused && table.parameters() == 0) {
    return absl::FailedPreconditionError(
        StrCat("the model has no parameters: it lists ", tensors.size(),
               " tensors, none of them a parameter with elements"));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckOverlaps(table.entries));
  return table;
}

absl::Status CheckSameLayout(const TensorTable& live, const TensorTable& replica) {
  for (size_t i = 0; i < std::max(live.names.size(), replica.names.size()); ++i) {
    if (i >= replica.names.size() || i >= live.names.size() || live.names[i] != replica.names[i]) {
      return absl::FailedPreconditionError(
          StrCat("the replica differs from the live model: tensor ", i, " is '",
                 i < live.names.size() ? live.names[i] : "(none)", "' in the live model and '",
                 i < replica.names.size() ? replica.names[i] : "(none)", "' in the replica"));
    }
    const std::string& name = live.names[i];
    const at::Tensor& a = live.entries[static_cast<size_t>(live.index[i])].tensor;
    const at::Tensor& b = replica.entries[static_cast<size_t>(replica.index[i])].tensor;
    if (a.sizes() != b.sizes()) {
      return absl::FailedPreconditionError(
          StrCat("the replica differs from the live model: '", name, "' is ", ShapeText(a),
                 " in the live model and ", ShapeText(b), " in the replica"));
    }
    const at::ScalarType type =
        OriginalType(live, live.entries[static_cast<size_t>(live.index[i])]);
    if (a.scalar_type() != b.scalar_type() && type != b.scalar_type()) {
      return absl::FailedPreconditionError(
          StrCat("the replica differs from the live model: '", name, "' is ",
                 at::toString(a.scalar_type()), " in the live model and ",
                 at::toString(b.scalar_type()), " in the replica"));
    }
    if (live.index[i] != replica.index[i]) {
      return absl::FailedPreconditionError(
          StrCat("the replica ties its tensors differently from the live model: '", name, "' is ",
                 "the same memory as '", live.entries[static_cast<size_t>(live.index[i])].name,
                 "' in the live model and as '",
                 replica.entries[static_cast<size_t>(replica.index[i])].name, "' in the replica"));
    }
    const void* live_data = a.numel() > 0 ? a.const_data_ptr() : nullptr;
    if (live_data != nullptr && live_data == b.const_data_ptr()) {
      return absl::FailedPreconditionError(
          StrCat("the replica shares the memory of '", name,
                 "' with the live model; the replica function must build a model of its own"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorTable> MakeLiveTable(const std::vector<NamedTensor>& tensors, Parts parts) {
  PTQWATCH_ASSIGN_OR_RETURN(TensorTable live, MakeTensorTable(tensors, parts));
  if (live.entries.empty()) {
    return absl::FailedPreconditionError("the model has no tensors");
  }
  const TensorEntry& first = live.entries[0];
  for (const TensorEntry& entry : live.entries) {
    if (entry.tensor.device() != first.tensor.device()) {
      return absl::FailedPreconditionError(
          StrCat("tensors '", first.name, "' and '", entry.name,
                 "' are on different devices; a model on several devices is not supported"));
    }
  }
  return live;
}

}  // namespace ptqwatch::internal
