#ifndef PTQWATCH_RANKS_SHARDED_PARAMETERS_H_
#define PTQWATCH_RANKS_SHARDED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "char_model.h"
#include "ptqwatch/subject.h"
#include "rank_group.h"
#include "torch/optim/adamw.h"

namespace ptqwatch::examples {

/// The parameters of a model of which each rank keeps a part, with the optimizer's state for it:
/// the rows that at::chunk cuts, as FSDP2 does. The model's own tensors are what forward and
/// backward passes work on, and hold the parts of all ranks after each step.
class ShardedParameters {
 public:
  /// `model` and `group` are not owned.
  ShardedParameters(CharModel* model, RankGroup* group, int64_t rank, int64_t ranks,
                    double weight_decay);

  /// Takes one optimizer step with the gradients of the model, which are the same on all ranks.
  /// Waits for the other ranks; throws what RankGroup does.
  void Step(double learning_rate);

  /// For a monitor: the parts of this rank, and their optimizer.
  const std::vector<NamedTensor>& parts() const { return parts_; }
  OptimizerView Optimizer() const;

 private:
  CharModel& model_;
  RankGroup& group_;
  const int64_t ranks_;
  std::vector<NamedTensor> parts_;
  torch::optim::AdamW optimizer_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_RANKS_SHARDED_PARAMETERS_H_
