#ifndef PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_
#define PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "char_gpt_flags.h"
#include "char_model.h"
#include "ptqwatch/subject.h"
#include "sequences.h"
#include "text.h"
#include "torch/optim/adamw.h"

namespace ptqwatch::examples {

/// All of a training run but its loop: text, model, optimizer, batches. Two with the same flags
/// that make the same steps have the same weights.
class CharTraining {
 public:
  /// Seeds the default generator. Throws a UsageError for a text that cannot be read or is too
  /// short.
  explicit CharTraining(const CharGptFlags& flags);
  CharTraining(const CharTraining&) = delete;
  CharTraining& operator=(const CharTraining&) = delete;

  /// One optimizer step on the next batch; its loss before that.
  at::Tensor Step(double learning_rate);

  /// What is measured. Losses are compared on held-out text, GPTQ is calibrated on training text.
  /// The closures own what they capture, except the optimizer: this object must outlive the
  /// monitor.
  std::unique_ptr<Subject> MakeSubject() const;

  /// Training goes on from `path` as it would have from here: weights, optimizer, batches. Written
  /// whole or not at all. Errors name the file.
  absl::Status SaveState(const std::string& path) const;
  /// REQUIRES: the flags that shape the model are those of the training that saved.
  absl::Status LoadState(const std::string& path);
  /// The parameters alone, as safetensors. Written whole or not at all.
  absl::Status SaveWeights(const std::string& path) const;
  /// Gives the model these parameters; the optimizer stays as it is. InvalidArgument where one is
  /// missing or has another shape.
  absl::Status LoadWeights(const std::vector<NamedTensor>& weights);
  /// The batches from here on.
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
  torch::optim::AdamW optimizer_;
  std::mt19937_64 generator_;
  const at::Tensor x_, y_;  // the batch
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_CHAR_TRAINING_H_
