#ifndef PTQWATCH_OFFLINE_SAFETENSORS_H_
#define PTQWATCH_OFFLINE_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/config.h"

namespace ptqwatch {

/// The element types of the safetensors format.
enum class TensorDtype {
  kBool,
  kU8,
  kI8,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
  kC64,
};
/// The names in the format: "F32", "BF16", "I64", ...
PTQWATCH_EXPORT std::string_view ToString(TensorDtype dtype);
/// Whether SafetensorsFile::ReadFloats can read it: F16, BF16, F32 and F64.
PTQWATCH_EXPORT bool IsConvertibleToFloat(TensorDtype dtype);

struct PTQWATCH_EXPORT TensorInfo {
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<int64_t> shape;  ///< empty: a scalar
  int64_t offset = 0;          ///< from the first data byte of the file
  int64_t bytes = 0;

  int64_t elements() const;
  /// "F16[64, 128]".
  std::string Describe() const;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

using TensorInfoMap = std::map<std::string, TensorInfo, std::less<>>;  ///< by name
using TensorMetadata = std::map<std::string, std::string, std::less<>>;

/// A safetensors file opened for reading. Movable; reading is thread-safe.
///
/// Open reads and checks the header only. It refuses names that are not UTF-8 or occur twice,
/// shapes whose size overflows, and offsets that overlap, leave gaps or leave the file. Tensors are
/// read on request. Errors: the system's (NotFound, PermissionDenied, ...); DataLoss if the content
/// is damaged or the file was truncated after it was opened; ResourceExhausted. Every message names
/// the file, and the tensor if one is to blame.
class PTQWATCH_EXPORT SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const TensorInfoMap& tensors() const { return tensors_; }
  const TensorMetadata& metadata() const { return metadata_; }
  /// Null if the file does not hold the tensor.
  const TensorInfo* Find(std::string_view tensor) const;

  /// Reads bytes [offset, offset + out.size()) of a tensor. NotFound if there is no such tensor,
  /// OutOfRange if the bytes are not within it.
  absl::Status ReadBytes(std::string_view tensor, int64_t offset, absl::Span<char> out) const;
  /// Reads elements [first, first + count) in row-major order as float32. F64 is rounded half to
  /// even, and to infinity beyond float32's range; NaN stays NaN. InvalidArgument for other dtypes.
  absl::StatusOr<std::vector<float>> ReadFloats(std::string_view tensor, int64_t first,
                                                int64_t count) const;
  absl::StatusOr<std::vector<float>> ReadFloats(std::string_view tensor) const;

 private:
  SafetensorsFile() = default;
  absl::Status ReadAt(int64_t position, absl::Span<char> out, std::string_view what) const;

  std::string path_;
  int descriptor_ = -1;
  int64_t data_begin_ = 0;
  TensorInfoMap tensors_;
  TensorMetadata metadata_;
};

/// A tensor to write.
struct TensorSource {
  std::string name;
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<int64_t> shape;
  /// Fills `out` with the bytes from `offset` on. Called with ascending offsets, for at most 1 MiB
  /// at a time. An error aborts the write with that status.
  std::function<absl::Status(int64_t offset, absl::Span<char> out)> read;
};
/// Makes a tensor from bytes in memory.
PTQWATCH_EXPORT TensorSource MakeTensorSource(std::string name, TensorDtype dtype,
                                              std::vector<int64_t> shape, std::string bytes);
/// Makes a tensor from an open file, copied unchanged. `file` must outlive the source.
PTQWATCH_EXPORT TensorSource MakeTensorSource(const SafetensorsFile& file, std::string_view tensor);

/// Writes a safetensors file. Tensors with wider elements come first, and tensors of one width are
/// sorted by name, so each is aligned to its elements without gaps, which the format forbids.
///
/// Atomic: the content goes to a temporary file in the same folder, which is synced (fsync) and
/// then renamed. A failure before that leaves no temporary file and does not change `path`. Errors:
/// InvalidArgument (a name that occurs twice, is not UTF-8 or is "__metadata__"; a shape whose size
/// overflows), system errors (no space, no permission, ...), and errors of a source. All name the
/// path.
PTQWATCH_EXPORT absl::Status WriteSafetensors(const std::string& path,
                                              const std::vector<TensorSource>& tensors,
                                              const TensorMetadata& metadata = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_SAFETENSORS_H_
