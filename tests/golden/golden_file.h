#ifndef PTQWATCH_TESTS_GOLDEN_GOLDEN_FILE_H_
#define PTQWATCH_TESTS_GOLDEN_GOLDEN_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::testing {

/// A golden file: tensors and metadata of a safetensors file, read by type and shape. It reads with
/// the library's own reader, which has tests of its own; the numbers are the reference's.
class GoldenFile {
 public:
  /// Errors are those of ptqwatch::SafetensorsFile::Open.
  static absl::StatusOr<GoldenFile> Read(const std::string& path);

  bool Has(std::string_view tensor) const { return file_.Find(tensor) != nullptr; }
  /// NotFound for a tensor that the file does not hold.
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view tensor) const;

  /// The tensor's values in row-major order. DataLoss when it has another dtype or shape than asked
  /// for.
  absl::StatusOr<std::vector<float>> Floats(std::string_view tensor,
                                            const std::vector<int64_t>& shape) const;
  absl::StatusOr<std::vector<double>> Doubles(std::string_view tensor,
                                              const std::vector<int64_t>& shape) const;
  absl::StatusOr<std::vector<int8_t>> Int8s(std::string_view tensor,
                                            const std::vector<int64_t>& shape) const;
  absl::StatusOr<std::vector<uint8_t>> Uint8s(std::string_view tensor,
                                              const std::vector<int64_t>& shape) const;
  absl::StatusOr<std::vector<int32_t>> Int32s(std::string_view tensor,
                                              const std::vector<int64_t>& shape) const;
  absl::StatusOr<std::vector<int64_t>> Int64s(std::string_view tensor,
                                              const std::vector<int64_t>& shape) const;

  /// A metadata entry. NotFound if it is missing, DataLoss if it does not parse as the type asked
  /// for.
  absl::StatusOr<std::string> Text(std::string_view key) const;
  absl::StatusOr<double> Number(std::string_view key) const;
  absl::StatusOr<int> Integer(std::string_view key) const;
  absl::StatusOr<bool> Flag(std::string_view key) const;

 private:
  explicit GoldenFile(ptqwatch::SafetensorsFile file) : file_(std::move(file)) {}

  template <typename T>
  absl::StatusOr<std::vector<T>> Values(std::string_view tensor, TensorDtype dtype,
                                        const std::vector<int64_t>& shape) const;

  ptqwatch::SafetensorsFile file_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_GOLDEN_FILE_H_
