#include "streamed/token_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "ATen/ops/copy.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/zeros.h"
#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// Enough for a matrix product to run at full speed, and little enough that one takes well under a
// second.
constexpr int64_t kTokensTogether = 1024;

// Calls `work` with the first sequence and the number of sequences of each slice.
absl::Status ForEachSlice(const at::Tensor& tokens, const ExecutionContext& context,
                          absl::FunctionRef<absl::Status(int64_t first, int64_t count)> work) {
  const int64_t sequences = tokens.size(0);
  const int64_t together = SequencesTogether(tokens.size(1) - 1);
  for (int64_t first = 0; first < sequences; first += together) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_RETURN_IF_ERROR(work(first, std::min(together, sequences - first)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Reservation>> Reserve(int64_t bytes,
                                                     const ExecutionContext& context) {
  auto held = std::make_unique<Reservation>(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held->Take(bytes, "the hidden states of a stream of tokens"));
  return held;
}

}  // namespace

int64_t SequencesTogether(int64_t length) {
  return std::max<int64_t>(1, kTokensTogether / std::max<int64_t>(1, length));
}

std::vector<Batch> TokenBatches(const at::Tensor& tokens) {
  std::vector<Batch> batches;
  const int64_t together = SequencesTogether(tokens.size(1) - 1);
  for (int64_t first = 0; first < tokens.size(0); first += together) {
    batches.push_back(
        Batch{tokens.narrow(0, first, std::min(together, tokens.size(0) - first)).contiguous()});
  }
  return batches;
}

int64_t TokenStream::Bytes(const Decoder& decoder, const at::Tensor& tokens) {
  return 4 * tokens.size(0) * (tokens.size(1) - 1) * decoder.config().hidden;
}

absl::StatusOr<TokenStream> TokenStream::Embed(const Decoder& decoder, at::Tensor tokens,
                                               const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<Reservation> held,
                            Reserve(Bytes(decoder, tokens), context));
  const int64_t length = tokens.size(1) - 1;
  at::Tensor hidden = at::empty({tokens.size(0), length, decoder.config().hidden}, at::kFloat);
  PTQWATCH_RETURN_IF_ERROR(ForEachSlice(tokens, context, [&](int64_t first, int64_t count) {
    const at::Tensor inputs = tokens.narrow(0, first, count).narrow(1, 0, length).contiguous();
    const absl::StatusOr<at::Tensor> embedded = decoder.Embed(inputs);
    if (embedded.ok()) hidden.narrow(0, first, count).copy_(*embedded);
    return embedded.status();
  }));
  return TokenStream(std::move(tokens), std::move(hidden), std::move(held));
}

absl::StatusOr<TokenStream> TokenStream::Copy(const ExecutionContext& context) const {
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<Reservation> held, Reserve(held_->bytes(), context));
  return TokenStream(tokens_, hidden_.clone(), std::move(held));
}

absl::StatusOr<at::Tensor> TokenStream::Compute(int64_t first, int64_t count,
                                                const DecoderBlock& block,
                                                const std::vector<at::Tensor>& weights,
                                                OnInput on_input,
                                                const ExecutionContext& context) const {
  at::NoGradGuard no_grad;
  absl::Status failed;
  const auto apply = [&](size_t linear, const at::Tensor& x) {
    const at::Tensor& weight = weights[linear];
    if (failed.ok()) failed = context.Checkpoint();
    if (failed.ok()) failed = on_input(linear, x);
    if (failed.ok()) return at::linear(x, weight, block.biases()[linear]);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return at::zeros(sizes, x.options());  // soon ends the pass
  };
  // A tensor of its own is aligned as in a whole model: a matrix product may round differently at
  // other addresses.
  at::Tensor moved = block.Forward(hidden_.narrow(0, first, count).clone(), apply);
  if (!failed.ok()) return failed;
  return moved;
}

absl::Status TokenStream::Pass(int64_t first, int64_t count, const DecoderBlock& block,
                               const std::vector<at::Tensor>& weights, OnInput on_input,
                               const ExecutionContext& context) {
  PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor moved,
                            Compute(first, count, block, weights, on_input, context));
  hidden_.narrow(0, first, count).copy_(moved);
  return absl::OkStatus();
}

absl::Status TokenStream::PassThrough(const DecoderBlock& block,
                                      const std::vector<at::Tensor>& weights, OnInput on_input,
                                      const ExecutionContext& context) {
  return ForEachSlice(tokens_, context, [&](int64_t first, int64_t count) {
    return Pass(first, count, block, weights, on_input, context);
  });
}

absl::Status TokenStream::LookThrough(const DecoderBlock& block,
                                      const std::vector<at::Tensor>& weights, OnInput on_input,
                                      const ExecutionContext& context) const {
  return ForEachSlice(tokens_, context, [&](int64_t first, int64_t count) {
    return Compute(first, count, block, weights, on_input, context).status();
  });
}

size_t TokenStream::slices() const {
  const int64_t together = SequencesTogether(tokens_.size(1) - 1);
  return static_cast<size_t>((tokens_.size(0) + together - 1) / together);
}

absl::Status TokenStream::PassSlice(size_t slice, const DecoderBlock& block,
                                    const std::vector<at::Tensor>& weights,
                                    const ExecutionContext& context) {
  const int64_t together = SequencesTogether(tokens_.size(1) - 1);
  const int64_t first = static_cast<int64_t>(slice) * together;
  return Pass(
      first, std::min(together, tokens_.size(0) - first), block, weights,
      [](size_t, const at::Tensor&) { return absl::OkStatus(); }, context);
}

double TokenStream::SquaredErrorRatio(const TokenStream& reference) const {
  const float* const h = hidden_.const_data_ptr<float>();
  const float* const r = reference.hidden_.const_data_ptr<float>();
  double error = 0;
  double whole = 0;
  for (int64_t i = 0; i < hidden_.numel(); ++i) {
    const double difference = static_cast<double>(h[i]) - r[i];
    error += difference * difference;
    whole += static_cast<double>(r[i]) * r[i];
  }
  return error / whole;
}

absl::StatusOr<std::vector<UnitLosses>> TokenStream::Losses(const DecoderHead& head,
                                                            const ExecutionContext& context) const {
  at::NoGradGuard no_grad;
  std::vector<UnitLosses> batches;
  PTQWATCH_RETURN_IF_ERROR(ForEachSlice(tokens_, context, [&](int64_t first, int64_t count) {
    const at::Tensor tokens = tokens_.narrow(0, first, count);
    const at::Tensor targets = tokens.narrow(1, 1, tokens.size(1) - 1).contiguous();
    const at::Tensor losses = head.TokenLosses(hidden_.narrow(0, first, count).clone(), targets);
    absl::StatusOr<UnitLosses> units = SumByUnit(losses, Batch{tokens});
    if (units.ok()) batches.push_back(*std::move(units));
    return units.status();
  }));
  return batches;
}

at::Tensor TokenStream::HiddenAt(const at::Tensor& places) const {
  return hidden_.flatten(0, 1).index_select(0, places);
}

}  // namespace ptqwatch::internal
