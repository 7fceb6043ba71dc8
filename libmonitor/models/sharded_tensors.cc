#include "models/sharded_tensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

constexpr std::string_view kShardingInfo = "DCP_SHARDING_INFO";
constexpr int64_t kReadElements = int64_t{1} << 18;
// Beyond this no product of offsets and sizes may go.
constexpr int64_t kMaxElements = int64_t{1} << 50;

std::string Text(const std::vector<int64_t>& numbers) {
  return StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

// Elements of the dimensions from `begin` on. Those of a tensor are few enough (CheckCover).
int64_t Volume(const std::vector<int64_t>& shape, size_t begin = 0) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(std::min(begin, shape.size())),
                         shape.end(), int64_t{1}, std::multiplies<>());
}

absl::Status InFile(const SafetensorsFile& file, std::string_view tensor, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat(Quoted(file.path()), ": ", kShardingInfo, " ", what, " tensor ", Quoted(tensor)));
}

absl::StatusOr<std::vector<int64_t>> OffsetOf(const SafetensorsFile& file, const json& info,
                                              const std::string& tensor, size_t dimensions) {
  const auto found = info.find(tensor);
  if (found == info.end()) return InFile(file, tensor, "lacks");
  const auto offsets = found->is_object() ? found->find("saved_offsets") : found->end();
  std::vector<int64_t> offset;
  if (found->is_object() && offsets != found->end() && offsets->is_array()) {
    for (const json& value : *offsets) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{kMaxElements}) break;
      offset.push_back(value.get<int64_t>());
    }
    if (offset.size() == offsets->size() && offset.size() == dimensions) return offset;
  }
  return InFile(file, tensor, StrCat("has not ", dimensions, " saved_offsets for"));
}

absl::Status AddBoxes(absl::Span<const SafetensorsFile> files, size_t index,
                      ShardedTensors& tensors) {
  const SafetensorsFile& file = files[index];
  const auto text = file.metadata().find(kShardingInfo);
  const json info = text == file.metadata().end()
                        ? json()
                        : json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (!info.is_object()) {
    return absl::InvalidArgumentError(StrCat(
        Quoted(file.path()), " has no ", kShardingInfo,
        " in its metadata, which says what the shards of torch.distributed.checkpoint hold"));
  }
  for (const auto& [name, stored] : file.tensors()) {
    PTQWATCH_ASSIGN_OR_RETURN(std::vector<int64_t> offset,
                              OffsetOf(file, info, name, stored.shape.size()));
    const auto [known, is_new] = tensors.try_emplace(name);
    ShardedTensor& tensor = known->second;
    if (is_new) {
      tensor.dtype = stored.dtype;
      tensor.shape.resize(stored.shape.size());
    } else if (tensor.dtype != stored.dtype || tensor.shape.size() != stored.shape.size()) {
      return absl::InvalidArgumentError(StrCat(Quoted(file.path()), " has ", Quoted(name), " as ",
                                               stored.Describe(),
                                               ", of other type or other dimensions than in ",
                                               Quoted(files[tensor.boxes[0].file].path())));
    }
    for (size_t i = 0; i < offset.size(); ++i) {
      tensor.shape[i] = std::max(tensor.shape[i], offset[i] + stored.shape[i]);
    }
    tensor.boxes.push_back({index, std::move(offset), stored.shape});
  }
  return absl::OkStatus();
}

bool Overlap(const TensorBox& a, const TensorBox& b) {
  for (size_t i = 0; i < a.offset.size(); ++i) {
    if (a.offset[i] + a.shape[i] <= b.offset[i] || b.offset[i] + b.shape[i] <= a.offset[i]) {
      return false;
    }
  }
  return true;
}

// Drops empty and repeated boxes; DataLoss unless the others cover the tensor once.
absl::Status CheckCover(absl::Span<const SafetensorsFile> files, const std::string& name,
                        ShardedTensor& tensor) {
  std::vector<TensorBox>& boxes = tensor.boxes;
  const size_t first_file = boxes.front().file;
  std::erase_if(boxes, [](const TensorBox& box) { return Volume(box.shape) == 0; });
  const auto place = [](const TensorBox& box) { return std::tie(box.offset, box.shape); };
  std::stable_sort(boxes.begin(), boxes.end(),
                   [&](const TensorBox& a, const TensorBox& b) { return place(a) < place(b); });
  boxes.erase(
      std::unique(boxes.begin(), boxes.end(),
                  [&](const TensorBox& a, const TensorBox& b) { return place(a) == place(b); }),
      boxes.end());
  int64_t covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    covered += Volume(boxes[i].shape);
    // Later boxes begin no earlier in the first dimension.
    for (size_t j = i + 1; j < boxes.size() && !boxes[i].offset.empty() &&
                           boxes[j].offset[0] < boxes[i].offset[0] + boxes[i].shape[0];
         ++j) {
      if (!Overlap(boxes[i], boxes[j])) continue;
      return absl::DataLossError(StrCat(Quoted(files[boxes[j].file].path()), " has ",
                                        Text(boxes[j].shape), " of ", Quoted(name), " from ",
                                        Text(boxes[j].offset), " on, which overlaps what ",
                                        Quoted(files[boxes[i].file].path()), " has"));
    }
  }
  // In floating point, because offsets are anything that a file says.
  double elements = 1;
  for (const int64_t size : tensor.shape) elements *= static_cast<double>(size);
  if (elements <= kMaxElements && covered == Volume(tensor.shape)) return absl::OkStatus();
  return absl::DataLossError(StrCat("the shards beside ", Quoted(files[first_file].path()),
                                    " have ", covered, " elements of ", Quoted(name), ", which is ",
                                    Text(tensor.shape), "; a file is missing"));
}

// Elements [first, first + count) of a tensor, and where they go.
struct Range {
  const ShardedTensor& tensor;
  int64_t first;
  int64_t count;
  float* out;

  // Copies the elements of a box from dimension `dim` on, which begin at `at` in the tensor, and
  // moves `values` behind them.
  void Scatter(const TensorBox& box, size_t dim, int64_t at, const float*& values) const {
    const int64_t stride = Volume(tensor.shape, dim);
    if (dim == tensor.shape.size() || Volume(box.shape, dim) == stride) {
      Copy(at, stride, values);
      return;
    }
    const int64_t inner = stride / tensor.shape[dim];
    if (inner == 1) {
      Copy(at + box.offset[dim], box.shape[dim], values);
      return;
    }
    for (int64_t i = 0; i < box.shape[dim]; ++i) {
      Scatter(box, dim + 1, at + (box.offset[dim] + i) * inner, values);
    }
  }

 private:
  void Copy(int64_t at, int64_t elements, const float*& values) const {
    const int64_t begin = std::max(at, first);
    const int64_t end = std::min(at + elements, first + count);
    if (begin < end) std::copy(values + (begin - at), values + (end - at), out + (begin - first));
    values += elements;
  }
};

}  // namespace

absl::StatusOr<ShardedTensors> PutTogether(absl::Span<const SafetensorsFile> files) {
  ShardedTensors tensors;
  for (size_t i = 0; i < files.size(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(AddBoxes(files, i, tensors));
  }
  for (auto& [name, tensor] : tensors) {
    PTQWATCH_RETURN_IF_ERROR(CheckCover(files, name, tensor));
  }
  return tensors;
}

absl::Status ReadSharded(absl::Span<const SafetensorsFile> files, const std::string& name,
                         const ShardedTensor& tensor, int64_t first, int64_t count, float* out) {
  const Range range{tensor, first, count, out};
  const int64_t row = Volume(tensor.shape, 1);  // elements
  for (const TensorBox& box : tensor.boxes) {
    const SafetensorsFile& file = files[box.file];
    const int64_t width = Volume(box.shape, 1);
    const int64_t offset = box.offset.empty() ? 0 : box.offset[0];
    const int64_t rows = box.shape.empty() ? 1 : box.shape[0];
    const int64_t end = std::min(rows, (first + count + row - 1) / row - offset);
    const int64_t at_once = std::max<int64_t>(1, kReadElements / width);
    for (int64_t begin = std::max<int64_t>(0, first / row - offset); begin < end;
         begin += at_once) {
      const int64_t number = std::min(at_once, end - begin);
      PTQWATCH_ASSIGN_OR_RETURN(const std::vector<float> values,
                                file.ReadFloats(name, begin * width, number * width));
      const float* next = values.data();
      for (int64_t i = 0; i < number; ++i) {
        range.Scatter(box, 1, (offset + begin + i) * row, next);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
