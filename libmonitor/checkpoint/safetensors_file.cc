#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "checkpoint/float16.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/tensor_dtype.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch {
namespace {

using internal::Quoted;
using internal::StrCat;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

template <typename T, typename Convert>
void ConvertTo(absl::Span<const char> bytes, Convert convert, std::vector<float>* out) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    out->push_back(convert(value));
  }
}

void AppendFloats(TensorDtype dtype, absl::Span<const char> bytes, std::vector<float>* out) {
  switch (dtype) {
    case TensorDtype::kF16:
      return ConvertTo<uint16_t>(bytes, internal::FloatFromF16, out);
    case TensorDtype::kBF16:
      return ConvertTo<uint16_t>(bytes, internal::FloatFromBf16, out);
    case TensorDtype::kF64:
      return ConvertTo<double>(bytes, internal::FloatFromDouble, out);
    default:
      return ConvertTo<float>(
          bytes, [](float value) { return value; }, out);
  }
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would block
  if (file.descriptor_ < 0) {
    return absl::ErrnoToStatus(errno, StrCat("cannot open ", Quoted(path)));
  }
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0) {
    return absl::ErrnoToStatus(errno, StrCat("cannot open ", Quoted(path)));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(StrCat(Quoted(path), " is not a file"));
  }
  const auto damaged = [&path](std::string_view what) {
    return absl::DataLossError(StrCat(Quoted(path), " is damaged: ", what));
  };
  const int64_t size = status.st_size;
  uint64_t length = 0;
  constexpr int64_t kLengthBytes = sizeof(length);
  if (size < kLengthBytes) return damaged(StrCat("it has only ", size, " bytes"));
  PTQWATCH_RETURN_IF_ERROR(
      file.ReadAt(0, absl::MakeSpan(reinterpret_cast<char*>(&length), sizeof(length)), "header"));
  // Without Git LFS, git clone leaves such a text in place of a large file.
  if (std::memcmp(&length, "version ", sizeof(length)) == 0) {
    return damaged("it is a pointer of Git LFS in place of the file, which git lfs pull fetches");
  }
  if (length > static_cast<uint64_t>(size - kLengthBytes)) {
    return damaged(StrCat("a header of ", length, " bytes in a file of ", size));
  }
  if (length > static_cast<uint64_t>(internal::kMaxHeaderBytes)) {
    return damaged(
        StrCat("a header of ", length, " bytes; the format allows ", internal::kMaxHeaderBytes));
  }
  PTQWATCH_RETURN_IF_ERROR(internal::Guard(Quoted(path), absl::StatusCode::kInternal, [&] {
    std::string text(static_cast<size_t>(length), '\0');
    PTQWATCH_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, absl::MakeSpan(text), "header"));
    file.data_begin_ = kLengthBytes + static_cast<int64_t>(length);
    absl::StatusOr<internal::SafetensorsHeader> header =
        internal::ParseSafetensorsHeader(text, size - file.data_begin_);
    if (!header.ok()) return damaged(internal::Message(header.status()));
    file.tensors_ = std::move(header->tensors);
    file.metadata_ = std::move(header->metadata);
    return absl::OkStatus();
  }));
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    path_ = std::move(other.path_);
    data_begin_ = other.data_begin_;
    tensors_ = std::move(other.tensors_);
    metadata_ = std::move(other.metadata_);
  }
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

const TensorInfo* SafetensorsFile::Find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status SafetensorsFile::ReadAt(int64_t position, absl::Span<char> out,
                                     std::string_view what) const {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor_, out.data(), out.size(), position);
    if (got < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, StrCat("cannot read ", what, " of ", Quoted(path_)));
    }
    if (got == 0) {
      return absl::DataLossError(StrCat(Quoted(path_), " was truncated within ", what));
    }
    position += got;
    out.remove_prefix(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadBytes(std::string_view tensor, int64_t offset,
                                        absl::Span<char> out) const {
  const TensorInfo* info = Find(tensor);
  if (info == nullptr) {
    return absl::NotFoundError(StrCat(Quoted(path_), " has no tensor ", Quoted(tensor)));
  }
  if (offset < 0 || offset > info->bytes ||
      static_cast<int64_t>(out.size()) > info->bytes - offset) {
    return absl::OutOfRangeError(StrCat("bytes ", offset, " to ", offset, " + ", out.size(),
                                        " of tensor ", Quoted(tensor), " in ", Quoted(path_),
                                        ", which has ", info->bytes));
  }
  return ReadAt(data_begin_ + info->offset + offset, out, StrCat("tensor ", Quoted(tensor)));
}

absl::StatusOr<std::vector<float>> SafetensorsFile::ReadFloats(std::string_view tensor,
                                                               int64_t first, int64_t count) const {
  const TensorInfo* info = Find(tensor);
  if (info == nullptr) {
    return absl::NotFoundError(StrCat(Quoted(path_), " has no tensor ", Quoted(tensor)));
  }
  if (!IsConvertibleToFloat(info->dtype)) {
    return absl::InvalidArgumentError(StrCat("tensor ", Quoted(tensor), " in ", Quoted(path_),
                                             " is ", info->Describe(),
                                             "; F16, BF16, F32 or F64 is needed"));
  }
  if (first < 0 || count < 0 || first > info->elements() || count > info->elements() - first) {
    return absl::OutOfRangeError(StrCat("elements ", first, " to ", first, " + ", count,
                                        " of tensor ", Quoted(tensor), " in ", Quoted(path_), ", ",
                                        info->Describe()));
  }
  const int64_t width = internal::BitsPerElement(info->dtype) / 8;
  constexpr int64_t kPiece = int64_t{1} << 18;  // elements
  const auto read = [&]() -> absl::StatusOr<std::vector<float>> {
    std::vector<float> values;
    values.reserve(static_cast<size_t>(count));
    std::vector<char> bytes(static_cast<size_t>(width * std::min(kPiece, count)));
    for (int64_t done = 0; done < count; done += kPiece) {
      const int64_t piece = std::min(kPiece, count - done);
      const auto span = absl::MakeSpan(bytes).first(static_cast<size_t>(width * piece));
      PTQWATCH_RETURN_IF_ERROR(ReadBytes(tensor, width * (first + done), span));
      AppendFloats(info->dtype, span, &values);
    }
    return values;
  };
  return internal::Guard(StrCat("tensor ", Quoted(tensor), " of ", Quoted(path_)),
                         absl::StatusCode::kInternal, read);
}

absl::StatusOr<std::vector<float>> SafetensorsFile::ReadFloats(std::string_view tensor) const {
  const TensorInfo* info = Find(tensor);
  return ReadFloats(tensor, 0, info == nullptr ? 0 : info->elements());
}

}  // namespace ptqwatch
