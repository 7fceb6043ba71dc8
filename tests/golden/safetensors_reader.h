#ifndef PTQWATCH_TESTS_GOLDEN_SAFETENSORS_READER_H_
#define PTQWATCH_TESTS_GOLDEN_SAFETENSORS_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::testing {

/// One safetensors file in memory: tensors and string metadata. Every offset, size and type of the
/// header is checked when the file is read, so the getters only fail on names and types.
class SafetensorsFile {
 public:
  /// NotFound where the file cannot be opened, DataLoss where its content is damaged; the message
  /// names the path.
  static absl::StatusOr<SafetensorsFile> Read(const std::string& path);

  bool Has(std::string_view tensor) const { return tensors_.contains(std::string(tensor)); }
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

  /// A metadata entry. NotFound when it is missing, DataLoss when it does not read as what is asked
  /// for.
  absl::StatusOr<std::string> Text(std::string_view key) const;
  absl::StatusOr<double> Number(std::string_view key) const;
  absl::StatusOr<int> Integer(std::string_view key) const;
  absl::StatusOr<bool> Flag(std::string_view key) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    size_t begin = 0;  // into data_
    size_t bytes = 0;
  };

  template <typename T>
  absl::StatusOr<std::vector<T>> Values(std::string_view tensor, std::string_view dtype,
                                        const std::vector<int64_t>& shape) const;

  std::string data_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_SAFETENSORS_READER_H_
