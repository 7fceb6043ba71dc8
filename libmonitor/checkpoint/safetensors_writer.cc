#include "checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/tensor_dtype.h"

namespace ptqwatch {
namespace {

using internal::Quoted;
using internal::StrCat;

constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Returns the sources in the order of writing, and puts their places into `header`.
absl::StatusOr<std::vector<const TensorSource*>> LayOut(const std::vector<TensorSource>& tensors,
                                                        internal::SafetensorsHeader* header) {
  std::vector<const TensorSource*> order;
  order.reserve(tensors.size());
  for (const TensorSource& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    const int width_a = internal::BitsPerElement(a->dtype);
    const int width_b = internal::BitsPerElement(b->dtype);
    return width_a != width_b ? width_a > width_b : a->name < b->name;
  });
  int64_t end = 0;
  for (const TensorSource* tensor : order) {
    if (tensor->name == internal::kMetadataKey || !internal::IsUtf8(tensor->name)) {
      return absl::InvalidArgumentError(
          StrCat("tensor ", Quoted(tensor->name), " has a name that the format cannot hold"));
    }
    TensorInfo info{.dtype = tensor->dtype, .shape = tensor->shape, .offset = end};
    const std::optional<int64_t> bytes = internal::TensorBytes(tensor->dtype, tensor->shape);
    if (!bytes || __builtin_add_overflow(end, *bytes, &end)) {
      return absl::InvalidArgumentError(
          StrCat("tensor ", Quoted(tensor->name), " has an impossible size: ", info.Describe()));
    }
    info.bytes = *bytes;
    if (!header->tensors.emplace(tensor->name, std::move(info)).second) {
      return absl::InvalidArgumentError(StrCat("tensor ", Quoted(tensor->name), " occurs twice"));
    }
  }
  return order;
}

absl::Status AppendTensor(const TensorSource& tensor, int64_t bytes, std::vector<char>* buffer,
                          internal::AtomicFile* file) {
  for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - offset);
    const auto span = absl::MakeSpan(*buffer).first(static_cast<size_t>(piece));
    PTQWATCH_RETURN_IF_ERROR(tensor.read(offset, span));
    PTQWATCH_RETURN_IF_ERROR(file->Append(span));
  }
  return absl::OkStatus();
}

absl::StatusOr<internal::AtomicFile> Stage(const std::string& path,
                                           const std::vector<TensorSource>& tensors,
                                           const TensorMetadata& metadata, mode_t mode) {
  internal::SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [key, value] : metadata) {
    if (!internal::IsUtf8(key) || !internal::IsUtf8(value)) {
      return absl::InvalidArgumentError(StrCat("metadata ", Quoted(key), " is not UTF-8"));
    }
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<const TensorSource*> order, LayOut(tensors, &header));
  const std::string text = internal::FormatSafetensorsHeader(header);
  if (static_cast<int64_t>(text.size()) > internal::kMaxHeaderBytes) {
    return absl::InvalidArgumentError(StrCat("the header would have ", text.size(),
                                             " bytes; the format allows ",
                                             internal::kMaxHeaderBytes));
  }

  PTQWATCH_ASSIGN_OR_RETURN(internal::AtomicFile file, internal::AtomicFile::Create(path, mode));
  char length[8];
  const uint64_t size = text.size();
  std::memcpy(length, &size, sizeof(length));
  PTQWATCH_RETURN_IF_ERROR(file.Append(length));
  PTQWATCH_RETURN_IF_ERROR(file.Append(text));
  std::vector<char> buffer(static_cast<size_t>(kPieceBytes));
  for (const TensorSource* tensor : order) {
    const int64_t bytes = header.tensors.find(tensor->name)->second.bytes;
    PTQWATCH_RETURN_IF_ERROR(AppendTensor(*tensor, bytes, &buffer, &file));
  }
  PTQWATCH_RETURN_IF_ERROR(file.Sync());
  return file;
}

}  // namespace

TensorSource MakeTensorSource(std::string name, TensorDtype dtype, std::vector<int64_t> shape,
                              std::string bytes) {
  const auto content = std::make_shared<const std::string>(std::move(bytes));
  return {.name = name,
          .dtype = dtype,
          .shape = std::move(shape),
          .read = [name, content](int64_t offset, absl::Span<char> out) {
            if (static_cast<size_t>(offset) + out.size() > content->size()) {
              return absl::InvalidArgumentError(StrCat("tensor ", Quoted(name), " has only ",
                                                       content->size(), " bytes of content"));
            }
            std::memcpy(out.data(), content->data() + offset, out.size());
            return absl::OkStatus();
          }};
}

TensorSource MakeTensorSource(const SafetensorsFile& file, std::string_view tensor) {
  TensorSource source;
  source.name = tensor;
  if (const TensorInfo* info = file.Find(tensor); info != nullptr) {
    source.dtype = info->dtype;
    source.shape = info->shape;
  }
  source.read = [&file, name = source.name](int64_t offset, absl::Span<char> out) {
    return file.ReadBytes(name, offset, out);
  };
  return source;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                              const TensorMetadata& metadata) {
  PTQWATCH_ASSIGN_OR_RETURN(internal::AtomicFile file,
                            internal::StageSafetensors(path, tensors, metadata));
  return file.Commit();
}

namespace internal {

absl::StatusOr<AtomicFile> StageSafetensors(const std::string& path,
                                            const std::vector<TensorSource>& tensors,
                                            const TensorMetadata& metadata, mode_t mode) {
  absl::StatusOr<AtomicFile> file = Guard([&] { return Stage(path, tensors, metadata, mode); });
  if (file.ok() || Message(file.status()).find(path) != std::string_view::npos) return file;
  return absl::Status(file.status().code(), StrCat(Quoted(path), ": ", file.status()));
}

}  // namespace internal
}  // namespace ptqwatch
