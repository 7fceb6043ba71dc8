#ifndef PTQWATCH_MODELS_EXPERT_READER_H_
#define PTQWATCH_MODELS_EXPERT_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/model_config.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {

/// The tensors of a checkpoint whose mixtures have a tensor for each matrix of an expert, as on the
/// hub, or other names than in transformers. Gives them as transformers holds them: "gate_up_proj"
/// [experts, 2 intermediate, hidden], whose rows are those of gate, then those of up, and
/// "down_proj" [experts, hidden, intermediate]. Other tensors are as in the checkpoint.
class ExpertReader final : public WeightReader {
 public:
  /// Null if the checkpoint has no such tensors. `weights` must outlive the result. InvalidArgument
  /// names a tensor that a mixture lacks.
  static absl::StatusOr<std::unique_ptr<WeightReader>> Create(const ModelConfig& config,
                                                              const WeightReader& weights);

  std::string Source() const override { return weights_.Source(); }
  std::vector<std::string> Names() const override { return names_; }
  /// InvalidArgument if two experts have other shapes.
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const override;
  absl::StatusOr<at::Tensor> Read(std::string_view name) const override;
  /// Counts a matrix beside the stack if experts are stored one by one.
  int64_t ReadingBytes(std::string_view name) const override;
  /// Reads the experts that `rows` names.
  absl::StatusOr<at::Tensor> ReadRows(std::string_view name,
                                      absl::Span<const int64_t> rows) const override;

 private:
  // Where the checkpoint has a tensor.
  struct Origin {
    std::string renamed = {};
    // Or the matrices of each expert, whose rows follow each other.
    std::vector<std::vector<std::string>> experts = {};
  };
  class Finder;

  explicit ExpertReader(const WeightReader& weights) : weights_(weights) {}
  absl::StatusOr<at::Tensor> ReadExperts(const Origin& origin,
                                         absl::Span<const int64_t> experts) const;

  const WeightReader& weights_;
  std::map<std::string, Origin, std::less<>> origins_;
  std::vector<std::string> names_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_EXPERT_READER_H_
