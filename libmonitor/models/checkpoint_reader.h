#ifndef PTQWATCH_MODELS_CHECKPOINT_READER_H_
#define PTQWATCH_MODELS_CHECKPOINT_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "models/checkpoint_files.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {

/// The tensors of a checkpoint's files. Shape and the functions that read refuse a tensor that is
/// not F16, BF16, F32 or F64 (InvalidArgument).
class CheckpointReader final : public WeightReader {
 public:
  explicit CheckpointReader(CheckpointFiles files) : files_(std::move(files)) {}

  const CheckpointFiles& files() const { return files_; }

  std::string Source() const override { return files_.folder(); }
  std::vector<std::string> Names() const override { return files_.Names(); }
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const override;
  absl::StatusOr<at::Tensor> Read(std::string_view name) const override;
  absl::StatusOr<at::Tensor> ReadRows(std::string_view name,
                                      absl::Span<const int64_t> rows) const override;

 private:
  CheckpointFiles files_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_CHECKPOINT_READER_H_
