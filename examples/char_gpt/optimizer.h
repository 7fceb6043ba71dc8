#ifndef PTQWATCH_CHAR_GPT_OPTIMIZER_H_
#define PTQWATCH_CHAR_GPT_OPTIMIZER_H_

#include <vector>

#include "muon.h"
#include "torch/nn/module.h"
#include "torch/optim/adamw.h"

namespace ptqwatch::examples {

/// AdamW with betas 0.9 and 0.95, and with weight decay on matrices only.
torch::optim::AdamW MakeAdamW(const std::vector<at::Tensor>& parameters, double weight_decay);

/// The optimizer of a CharModel: AdamW, or with `muon` Muon for the matrices between embeddings and
/// head and AdamW for all other parameters.
class Optimizer {
 public:
  Optimizer(const torch::nn::Module& model, bool muon, double weight_decay);

  /// REQUIRES: every parameter has a gradient.
  void Step(double learning_rate);

  const torch::optim::AdamW& adamw() const { return adamw_; }
  torch::optim::AdamW& adamw() { return adamw_; }
  /// Has no matrices if only AdamW is used.
  const Muon& muon() const { return muon_; }

 private:
  Muon muon_;
  torch::optim::AdamW adamw_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_OPTIMIZER_H_
