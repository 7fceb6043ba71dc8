#ifndef PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_
#define PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_

#include <memory>
#include <span>
#include <vector>

#include "adamw.h"
#include "net.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::examples {

/// The loss of each prediction, [B, 1], as in Net::Loss but with ATen operations. `weights` have
/// the names and shapes of Net::weights(); `batch` comes from WindowBatches.
LossValues NetLosses(const TensorMap& weights, const Batch& batch);

/// Net::weights() as tensors that share their memory.
std::vector<NamedTensor> WrapWeights(Net& net);

/// One int64 tensor [B, context + 1] per batch, with at most `size` windows each.
std::vector<Batch> WindowBatches(std::span<const Window> windows, int64_t context, int64_t size);

/// The optimizer's rule and state. The tensors share its memory.
OptimizerView ViewOf(AdamW& optimizer, const Net& net);

/// Makes the monitor's subject. The net and its optimizer must outlive it.
std::unique_ptr<Subject> MakeNetSubject(Net& net, AdamW& optimizer, std::span<const Window> probe,
                                        std::span<const Window> calibration);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_
