#ifndef PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_
#define PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_

#include <memory>
#include <span>
#include <vector>

#include "adamw.h"
#include "net.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::examples {

/// The net's loss of each prediction, [B, 1], in ATen operations: what Net::Loss computes, for
/// whatever weights are given. `weights` by the names of Net::weights(), shaped as they are;
/// `batch` as WindowBatches makes it.
LossValues NetLosses(const TensorMap& weights, const Batch& batch);

/// Net::weights(), wrapped where they are.
std::vector<NamedTensor> WrapWeights(Net& net);

/// One int64 tensor [B, context + 1] a batch, of at most `size` windows.
std::vector<Batch> WindowBatches(std::span<const Window> windows, int64_t context, int64_t size);

/// What the optimizer does to the net's weights, its memory wrapped where it is.
OptimizerView ViewOf(AdamW& optimizer, const Net& net);

/// What the monitor is given. The net and its optimizer must outlive it.
std::unique_ptr<Subject> MakeNetSubject(Net& net, AdamW& optimizer, std::span<const Window> probe,
                                        std::span<const Window> calibration);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_NET_SUBJECT_H_
