#include "models/weight_reader.h"

#include <algorithm>

#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {

int64_t ElementsOf(absl::Span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

int64_t WeightReader::ReadingBytes(std::string_view name) const {
  constexpr int64_t kBuffer = int64_t{16} << 20;
  const auto shape = Shape(name);
  return shape.ok() ? std::min(kBuffer, 12 * ElementsOf(*shape)) : 0;
}

absl::StatusOr<at::Tensor> WeightReader::ReadRows(std::string_view name,
                                                  absl::Span<const int64_t> rows) const {
  PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor tensor, Read(name));
  return Guard(StrCat("tensor ", Quoted(name)), absl::StatusCode::kInternal,
               [&]() -> absl::StatusOr<at::Tensor> {
                 const at::Tensor index = at::empty({std::ssize(rows)}, at::kLong);
                 std::copy(rows.begin(), rows.end(), index.mutable_data_ptr<int64_t>());
                 return tensor.index_select(0, index);
               });
}

std::vector<std::string> MapReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

absl::StatusOr<std::vector<int64_t>> MapReader::Shape(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(StrCat("there is no tensor ", Quoted(name)));
  }
  return found->second.sizes().vec();
}

absl::StatusOr<at::Tensor> MapReader::Read(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(StrCat("there is no tensor ", Quoted(name)));
  }
  return Guard(StrCat("tensor ", Quoted(name)), absl::StatusCode::kInternal,
               [&found]() -> absl::StatusOr<at::Tensor> { return found->second.to(at::kFloat); });
}

}  // namespace ptqwatch::internal
