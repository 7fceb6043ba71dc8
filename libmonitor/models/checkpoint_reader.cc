#include "models/checkpoint_reader.h"

#include <algorithm>

#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

absl::StatusOr<CheckpointFiles::Place> Find(const CheckpointFiles& files, std::string_view name) {
  const CheckpointFiles::Place place = files.Find(name);
  if (place.file == nullptr) {
    return absl::NotFoundError(StrCat(Quoted(files.folder()), " has no tensor ", Quoted(name)));
  }
  return place;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> CheckpointReader::Shape(std::string_view name) const {
  PTQWATCH_ASSIGN_OR_RETURN(const CheckpointFiles::Place place, Find(files_, name));
  if (!place.readable()) {
    const TensorInfo info{.dtype = place.dtype(), .shape = place.shape()};
    return absl::InvalidArgumentError(StrCat("tensor ", Quoted(place.name), " in ",
                                             Quoted(place.file->path()), " is ", info.Describe(),
                                             "; F16, BF16, F32 or F64 is needed"));
  }
  return place.shape();
}

absl::StatusOr<at::Tensor> CheckpointReader::Read(std::string_view name) const {
  PTQWATCH_ASSIGN_OR_RETURN(const CheckpointFiles::Place place, Find(files_, name));
  return Guard(StrCat("tensor ", Quoted(place.name), " of ", Quoted(place.file->path())),
               absl::StatusCode::kInternal, [&]() -> absl::StatusOr<at::Tensor> {
                 const at::Tensor tensor = at::empty(place.shape(), at::kFloat);
                 PTQWATCH_RETURN_IF_ERROR(
                     files_.Read(place, 0, tensor.numel(), tensor.mutable_data_ptr<float>()));
                 return tensor;
               });
}

absl::StatusOr<at::Tensor> CheckpointReader::ReadRows(std::string_view name,
                                                      absl::Span<const int64_t> rows) const {
  PTQWATCH_ASSIGN_OR_RETURN(const CheckpointFiles::Place place, Find(files_, name));
  return Guard(StrCat("tensor ", Quoted(place.name), " of ", Quoted(place.file->path())),
               absl::StatusCode::kInternal, [&]() -> absl::StatusOr<at::Tensor> {
                 std::vector<int64_t> shape = place.shape();
                 if (shape.empty())
                   return absl::InvalidArgumentError(StrCat(Quoted(name), " has no rows"));
                 shape[0] = std::ssize(rows);
                 const at::Tensor tensor = at::empty(shape, at::kFloat);
                 const int64_t width = rows.empty() ? 0 : tensor.numel() / shape[0];
                 float* out = tensor.mutable_data_ptr<float>();
                 for (size_t begin = 0; begin < rows.size();) {
                   size_t end = begin + 1;  // of rows that follow each other in the file, too
                   while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
                   const int64_t count = static_cast<int64_t>(end - begin) * width;
                   PTQWATCH_RETURN_IF_ERROR(files_.Read(place, rows[begin] * width, count, out));
                   out += count;
                   begin = end;
                 }
                 return tensor;
               });
}

}  // namespace ptqwatch::internal
