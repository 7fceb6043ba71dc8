#ifndef PTQWATCH_CHAR_GPT_OPTIMIZER_H_
#define PTQWATCH_CHAR_GPT_OPTIMIZER_H_

#include "torch/nn/module.h"
#include "torch/optim/adamw.h"

namespace ptqwatch::examples {

/// AdamW with betas 0.9 and 0.95, and with weight decay on matrices only.
torch::optim::AdamW MakeOptimizer(const torch::nn::Module& model, double weight_decay);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_OPTIMIZER_H_
