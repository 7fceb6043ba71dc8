#ifndef PTQWATCH_STREAMED_AVERAGE_READER_H_
#define PTQWATCH_STREAMED_AVERAGE_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {

/// The means of the tensors of several checkpoints of one model. Sums in float64 in the order of
/// the checkpoints and rounds once, to float32, whatever the type in the files; for files of
/// float32 these are the bits of AverageCheckpoints.
class AverageReader final : public WeightReader {
 public:
  /// A checkpoint and its name in messages. The reader is not owned and must outlive this.
  using Part = std::pair<std::string, const WeightReader*>;
  /// InvalidArgument, naming two parts and a tensor that one of them lacks, or for no parts.
  static absl::StatusOr<AverageReader> Create(std::vector<Part> parts);

  std::vector<std::string> Names() const override { return parts_.front().second->Names(); }
  /// InvalidArgument if the parts have other shapes.
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const override;
  /// Reads the rows of all parts piece by piece.
  absl::StatusOr<at::Tensor> Read(std::string_view name) const override;
  absl::StatusOr<at::Tensor> ReadRows(std::string_view name,
                                      absl::Span<const int64_t> rows) const override;
  /// Sums at least a matrix of a stack of experts at a time.
  int64_t ReadingBytes(std::string_view name) const override;

 private:
  explicit AverageReader(std::vector<Part> parts) : parts_(std::move(parts)) {}

  std::vector<Part> parts_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_AVERAGE_READER_H_
