#ifndef PTQWATCH_MODELS_WEIGHT_READER_H_
#define PTQWATCH_MODELS_WEIGHT_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

/// The number of elements of a tensor.
int64_t ElementsOf(absl::Span<const int64_t> shape);

/// The tensors of a model by their names in its checkpoint. Thread-safe.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  /// The name of the source in messages: the folder of a checkpoint. Empty for tensors in memory.
  virtual std::string Source() const { return {}; }
  /// All names, ascending.
  virtual std::vector<std::string> Names() const = 0;
  /// The shape of a tensor, without reading it. NotFound if there is no such tensor.
  virtual absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const = 0;
  /// A tensor as float32 on the CPU. Errors name the file and the tensor.
  virtual absl::StatusOr<at::Tensor> Read(std::string_view name) const = 0;
  /// Rows of a tensor, in the order of `rows`, which are within it: [rows.size(), ...]. Reads the
  /// whole tensor unless overridden.
  virtual absl::StatusOr<at::Tensor> ReadRows(std::string_view name,
                                              absl::Span<const int64_t> rows) const;
  /// The most bytes that Read takes beside its result; 0 if there is no such tensor. Unless
  /// overridden, those of a buffer of 16 MiB, or of thrice a smaller tensor.
  virtual int64_t ReadingBytes(std::string_view name) const;
};

/// A WeightReader over tensors in memory. Read gives a float32 tensor itself, not a copy, so that
/// what is computed from it has derivatives with respect to it.
class MapReader final : public WeightReader {
 public:
  using Tensors = std::map<std::string, at::Tensor, std::less<>>;
  explicit MapReader(Tensors tensors) : tensors_(std::move(tensors)) {}

  std::vector<std::string> Names() const override;
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const override;
  absl::StatusOr<at::Tensor> Read(std::string_view name) const override;

 private:
  Tensors tensors_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_WEIGHT_READER_H_
