#ifndef PTQWATCH_STREAMED_TASK_BATCHES_H_
#define PTQWATCH_STREAMED_TASK_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/decoder.h"
#include "models/model_config.h"
#include "models/task_file.h"
#include "ptqwatch/execution_context.h"
#include "streamed/task_scores.h"
#include "streamed/token_stream.h"

namespace ptqwatch::internal {

/// A token whose probability a task asks for.
struct TaskTarget {
  size_t item = 0;
  size_t choice = 0;
  int64_t place = 0;  ///< of the token before it, row N + position
  int64_t token = 0;
};

/// Sequences of about the same length, for a TokenStream.
struct TaskBatch {
  /// int64 [rows, N + 1], padded on the right. The model is causal, so that padding affects nothing
  /// before it.
  at::Tensor tokens;
  std::vector<TaskTarget> targets;
};

/// The sequences of all choices, shortest first. As in lm-eval, the model's input is context and
/// continuation without their last token, and the last tokens of it if it exceeds the model's
/// context. Choices of an item with the same input, such as answers of one token, share a row. At
/// most an eighth of a row is padding, or three tokens.
std::vector<TaskBatch> BatchTasks(absl::Span<const TaskItem> items, int64_t context);

/// InvalidArgument, naming item, choice and token, unless a model can be asked for all items.
absl::Status CheckTasks(absl::Span<const TaskItem> items, const ModelConfig& config);

/// The scores of all items, from a stream for each batch after the last block. Computes logits of
/// the continuations alone, about as many at a time as DecoderHead::TokenLosses. DataLoss, naming
/// the task, if one is not finite.
absl::StatusOr<std::vector<ItemScores>> ScoreChoices(absl::Span<const TaskItem> items,
                                                     absl::Span<const TaskBatch> batches,
                                                     absl::Span<const TokenStream> streams,
                                                     const Decoder& decoder,
                                                     const DecoderHead& head,
                                                     const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_TASK_BATCHES_H_
