#include "streamed/task_batches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/log_softmax.h"
#include "ATen/ops/tensor.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// As many logits at a time as DecoderHead computes.
constexpr int64_t kTaskLogits = int64_t{1} << 24;

// The length of the rows for inputs of this length.
int64_t RowLength(int64_t inputs, int64_t context) {
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(inputs)));
  const int64_t step = std::max<int64_t>(4, octave / 8);
  return std::min((inputs + step - 1) / step * step, context);
}

// A batch while its rows are added.
struct OpenBatch {
  std::vector<int64_t> tokens = {};
  std::vector<TaskTarget> targets = {};
  int64_t rows = 0;
};

// The model's input for a choice.
std::vector<int64_t> InputOf(const TaskChoice& choice, int64_t context) {
  std::vector<int64_t> input(choice.context.begin(), choice.context.end());
  input.insert(input.end(), choice.continuation.begin(), choice.continuation.end() - 1);
  const auto excess = std::ssize(input) - context;
  if (excess > 0) input.erase(input.begin(), input.begin() + excess);
  return input;
}

}  // namespace

std::vector<TaskBatch> BatchTasks(absl::Span<const TaskItem> items, int64_t context) {
  std::map<int64_t, OpenBatch> open;  // by the length of rows
  for (size_t i = 0; i < items.size(); ++i) {
    std::map<std::vector<int64_t>, int64_t> rows;  // of this item
    for (size_t c = 0; c < items[i].choices.size(); ++c) {
      const TaskChoice& choice = items[i].choices[c];
      const std::vector<int64_t> input = InputOf(choice, context);
      const int64_t length = RowLength(std::ssize(input), context);
      OpenBatch& batch = open[length];
      const auto [row, is_new] = rows.emplace(input, batch.rows);
      if (is_new) {
        batch.tokens.insert(batch.tokens.end(), input.begin(), input.end());
        batch.tokens.resize(static_cast<size_t>(++batch.rows * (length + 1)));
      }
      int64_t place = row->second * length + std::ssize(input) - std::ssize(choice.continuation);
      for (const int32_t token : choice.continuation) {
        batch.targets.push_back({.item = i, .choice = c, .place = place++, .token = token});
      }
    }
  }
  std::vector<TaskBatch> batches;
  for (auto& [length, batch] : open) {
    batches.push_back({.tokens = at::tensor(batch.tokens).view({batch.rows, length + 1}),
                       .targets = std::move(batch.targets)});
  }
  return batches;
}

absl::Status CheckTasks(absl::Span<const TaskItem> items, const ModelConfig& config) {
  for (size_t i = 0; i < items.size(); ++i) {
    const TaskItem& item = items[i];
    for (size_t c = 0; c < item.choices.size(); ++c) {
      const TaskChoice& choice = item.choices[c];
      const auto refuse = [&](std::string_view why) {
        return absl::InvalidArgumentError(StrCat("task ", Quoted(item.task), ", item ", i,
                                                 " of the file, choice ", c, ": ", why));
      };
      if (choice.context.empty() || choice.continuation.empty()) {
        return refuse("context and continuation need at least one token each");
      }
      if (std::ssize(choice.continuation) > config.context) {
        return refuse(StrCat("the continuation has ", choice.continuation.size(),
                             " tokens; the model's context is ", config.context));
      }
      for (const std::vector<int32_t>* part : {&choice.context, &choice.continuation}) {
        for (const int32_t token : *part) {
          if (token >= 0 && token < config.vocabulary) continue;
          return refuse(
              StrCat("token ", token, "; the vocabulary has ", config.vocabulary, " tokens"));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ItemScores>> ScoreChoices(absl::Span<const TaskItem> items,
                                                     absl::Span<const TaskBatch> batches,
                                                     absl::Span<const TokenStream> streams,
                                                     const Decoder& decoder,
                                                     const DecoderHead& head,
                                                     const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  std::vector<ItemScores> scores;
  for (const TaskItem& item : items) scores.emplace_back(item.choices.size(), ChoiceScore{0, true});
  const auto together =
      static_cast<size_t>(std::max<int64_t>(1, kTaskLogits / decoder.config().vocabulary));
  for (size_t b = 0; b < batches.size(); ++b) {
    const absl::Span<const TaskTarget> all = batches[b].targets;
    for (size_t first = 0; first < all.size(); first += together) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      const absl::Span<const TaskTarget> some = all.subspan(first, together);
      const at::Tensor places = at::empty({std::ssize(some)}, at::kLong);
      for (size_t i = 0; i < some.size(); ++i) {
        places.mutable_data_ptr<int64_t>()[i] = some[i].place;
      }
      const at::Tensor logs = at::log_softmax(head.Logits(streams[b].HiddenAt(places)), -1);
      const at::Tensor best = logs.argmax(-1);
      const int64_t* greedy = best.const_data_ptr<int64_t>();
      const float* log = logs.const_data_ptr<float>();
      for (size_t i = 0; i < some.size(); ++i, log += logs.size(1)) {
        ChoiceScore& score = scores[some[i].item][some[i].choice];
        score.log_likelihood += log[some[i].token];
        score.greedy = score.greedy && greedy[i] == some[i].token;
      }
    }
  }
  for (size_t i = 0; i < items.size(); ++i) {
    for (const ChoiceScore& score : scores[i]) {
      if (std::isfinite(score.log_likelihood)) continue;
      return absl::DataLossError(
          StrCat("a log-likelihood of task ", Quoted(items[i].task), " is not finite"));
    }
  }
  return scores;
}

}  // namespace ptqwatch::internal
