#ifndef PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_
#define PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "char_gpt_flags.h"
#include "char_model.h"
#include "optimizer.h"
#include "ptqwatch/subject.h"
#include "sequences.h"
#include "text.h"

namespace ptqwatch::examples {

/// Everything in a training run except its loop: text, model, optimizer, batches. Two objects with
/// the same flags and the same steps have the same weights.
class CharTraining {
 public:
  /// Seeds the default generator. Throws UsageError if the text cannot be read or is too short.
  explicit CharTraining(const CharGptFlags& flags);
  CharTraining(const CharTraining&) = delete;
  CharTraining& operator=(const CharTraining&) = delete;

  /// Takes one optimizer step on the next batch and returns the loss before it. `sam_rho` is the
  /// radius of sharpness-aware minimisation (CharGptFlags::SamRho); 0: without. Calls
  /// `on_gradients` when the gradients are complete, before they are clipped; data-parallel
  /// trainers average them there.
  at::Tensor Step(
      double learning_rate, double sam_rho = 0, absl::FunctionRef<void()> on_gradients = [] {});

  /// Step without the optimizer's part: leaves the clipped gradients to a trainer that updates the
  /// parameters itself.
  at::Tensor Gradients(double sam_rho, absl::FunctionRef<void()> on_gradients);

  /// The subject of the monitor. Losses are compared on held-out text, GPTQ is calibrated on
  /// training text. The closures own everything they use except the optimizer, so this object must
  /// outlive the monitor. `parts` and their `optimizer` are those of a trainer that keeps a part of
  /// each parameter.
  std::unique_ptr<Subject> MakeSubject(
      std::function<std::vector<NamedTensor>()> parts = nullptr,
      std::function<std::optional<OptimizerView>()> optimizer = nullptr) const;

  /// Saves weights, optimizer and batch generator; training resumed from `path` continues
  /// identically. Writes the whole file or nothing. Errors name the file.
  absl::Status SaveState(const std::string& path) const;
  /// REQUIRES: the flags that shape the model are those of the saved training.
  absl::Status LoadState(const std::string& path);
  /// Saves only the parameters, as safetensors. Writes the whole file or nothing.
  absl::Status SaveWeights(const std::string& path) const;
  /// Sets the model's parameters and keeps the optimizer's state. Returns InvalidArgument if one is
  /// missing or has another shape.
  absl::Status LoadWeights(const std::vector<NamedTensor>& weights);
  /// Seeds the choice of the following batches.
  void SeedBatches(uint64_t seed) { generator_.seed(seed); }

  /// Mean loss on the held-out text.
  double ValidationLoss();

  CharModel& model() { return *model_; }

 private:
  const CharGptFlags flags_;
  const Text text_;
  const ModelConfig config_;
  const std::shared_ptr<CharModel> model_;
  const SequenceShape shape_;
  const std::vector<Batch> probe_;
  Optimizer optimizer_;
  std::mt19937_64 generator_;
  const at::Tensor x_, y_;  // the current batch
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_
