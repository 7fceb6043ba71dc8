#include "benchmarks/trajectory_floors.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/bmm.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "benchmarks/repeats.h"
#include "models/attention.h"
#include "probes/weight_noise.h"
#include "streamed/block_quantizer.h"
#include "streamed/token_stream.h"

namespace ptqwatch::benchmarks {
namespace {

using internal::DecoderLinear;

/// A part of a measurement, and what LibTorch takes for its products alone, or to copy its bytes.
struct Part {
  std::string name;
  double flop = 0;
  double bytes = 0;      // that must move, of parts without products
  double peer_flop = 0;  // of the peer
  double peer_bytes = 0;
  double times = 1;  // in a checkpoint
  std::function<void()> work;
  std::function<void()> peer;
};

void Check(const absl::Status& status, const char* what) {
  if (!status.ok()) Fail(what, status);
}

double Product(int64_t a, int64_t b, int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

class Floors {
 public:
  Floors(const internal::Decoder& decoder, const internal::TrajectoryData& data,
         const internal::CheckpointMeasurement& options, int threads)
      : decoder_(decoder),
        options_(options),
        block_(OrFail(decoder.ReadBlock(0), "block")),
        linears_(decoder.LinearsOf(0)),
        length_(data.probe.size(1) - 1),
        sequences_(internal::SequencesTogether(length_)),
        blocks_(static_cast<double>(decoder.blocks())) {
    context_.threads = threads;
    const auto slices = [&](const at::Tensor& tokens) {
      return static_cast<double>(tokens.size(0)) / static_cast<double>(sequences_);
    };
    const bool noise = options.noise_relative_norm > 0;
    const auto together = static_cast<size_t>(sequences_);
    const internal::NoisePlan plan((static_cast<size_t>(data.probe.size(0)) + together - 1) /
                                   together);
    const double streams =
        noise ? static_cast<double>(plan.evaluations) / static_cast<double>(plan.batches) : 0;
    draws_ = noise ? static_cast<double>(plan.draws) : 0;
    sums_ = blocks_ * slices(data.calibration);
    heads_ = slices(data.probe) * (1 + static_cast<double>(options.quantizers.size()) + streams);
    passes_ = sums_ + blocks_ * heads_;
  }

  std::vector<std::function<Part()>> Parts() {
    return {[this] { return Read(); },         [this] { return Linears(); },
            [this] { return Attention(); },    [this] { return Block(); },
            [this] { return Gram(); },         [this] { return Quantize(false); },
            [this] { return Quantize(true); }, [this] { return Noise(); },
            [this] { return Head(); }};
  }

 private:
  int64_t tokens() const { return sequences_ * length_; }

  // The peer converts as many numbers of two bytes that are in memory.
  Part Read() const {
    const int64_t numbers = decoder_.BlockBytes(0) / 4;
    const at::Tensor halves = at::zeros({numbers}, at::kBFloat16);
    const double bytes = 6 * static_cast<double>(numbers);
    return {.name = "read",
            .bytes = bytes,
            .peer_bytes = bytes,
            .times = blocks_,
            .work = [this] { Check(decoder_.ReadBlock(0).status(), "block"); },
            .peer = [=] { at::empty({numbers}, at::kFloat).copy_(halves); }};
  }

  Part Linears() const {
    std::map<int64_t, at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    double flop = 0;
    for (const DecoderLinear& linear : linears_) {
      at::Tensor& x = inputs[linear.inputs];
      if (!x.defined()) x = at::randn({sequences_, length_, linear.inputs});
      outputs.push_back(at::empty({tokens(), linear.outputs}));
      flop += 2 * Product(tokens(), linear.outputs, linear.inputs);
    }
    return {.name = "linears",
            .flop = flop,
            .peer_flop = flop,
            .times = passes_,
            .work =
                [=, this] {
                  for (size_t i = 0; i < linears_.size(); ++i) {
                    at::linear(inputs.at(linears_[i].inputs), block_.weights()[i],
                               block_.biases()[i]);
                  }
                },
            .peer =
                [=, this] {
                  for (size_t i = 0; i < linears_.size(); ++i) {
                    at::Tensor out = outputs[i];
                    at::mm_out(out, inputs.at(linears_[i].inputs).flatten(0, 1),
                               block_.weights()[i].t());
                  }
                }};
  }

  // All pairs of tokens, as they are computed.
  Part Attention() const {
    const internal::ModelConfig& config = decoder_.config();
    const at::Tensor x = at::randn({sequences_, config.heads, length_, config.head_dim});
    const at::Tensor each = x.flatten(0, 1);
    const double flop = 4 * Product(tokens(), length_, config.heads * config.head_dim);
    at::Tensor scores = at::zeros({each.size(0), length_, length_});
    at::Tensor result = at::zeros_like(each);
    return {.name = "attention",
            .flop = flop,
            .peer_flop = flop,
            .times = passes_,
            .work = [=] { internal::CausalAttention(x, x, x, internal::ScoreConfig()); },
            .peer =
                [=]() mutable {
                  at::bmm_out(scores, each, each.transpose(1, 2));
                  at::bmm_out(result, scores, each);
                }};
  }

  // With norms, rotation, activation and sums.
  Part Block() const {
    const Part linears = Linears();
    const Part attention = Attention();
    const at::Tensor hidden = at::randn({sequences_, length_, decoder_.config().hidden});
    return {.name = "whole block",
            .flop = linears.flop + attention.flop,
            .peer_flop = linears.flop + attention.flop,
            .times = passes_,
            .work = [=, this] { block_.Forward(hidden); },
            .peer =
                [=] {
                  linears.peer();
                  attention.peer();
                }};
  }

  // One triangle of X^T X; the peer makes both.
  Part Gram() {
    struct Input {
      at::Tensor x;
      std::shared_ptr<internal::GramSum> sum;
      at::Tensor product;
    };
    std::vector<Input> inputs;
    std::set<int> seen;
    double flop = 0;
    for (const DecoderLinear& linear : linears_) {
      if (!seen.insert(linear.input).second) continue;
      const int64_t size = linear.inputs;
      inputs.push_back({.x = at::randn({tokens(), size}),
                        .sum = OrFail(backend_.Sum(size), "Gram"),
                        .product = at::zeros({size, size})});
      Check(inputs.back().sum->Add({.tensor = inputs.back().x, .form = {}}, context_), "Gram");
      flop += Product(tokens(), size, size);
    }
    return {.name = "Gram",
            .flop = flop,
            .peer_flop = 2 * flop,
            .times = sums_,
            .work =
                [=, this] {
                  for (const Input& input : inputs) {
                    Check(input.sum->Add({.tensor = input.x, .form = {}}, context_), "Gram");
                  }
                },
            .peer =
                [=] {
                  for (Input input : inputs) at::mm_out(input.product, input.x.t(), input.x);
                }};
  }

  // With statistics all quantizers and the errors of outputs. FLOP: a factor of each linear, d^3 /
  // 3, and m d^2 for the loop of each GPTQ, the loss of RTN at each width, and the energy of the
  // output. Without, RTN alone: codes and decoded weights.
  Part Quantize(bool with_statistics) {
    Part part;
    std::vector<QuantizerSpec> specs;
    std::set<int> widths;
    int loops = 0;
    for (const QuantizerSpec& spec : options_.quantizers) {
      const bool loop = spec.method == QuantizationMethod::kGptq;
      if (!with_statistics && spec.method != QuantizationMethod::kRtn) continue;
      specs.push_back(spec);
      widths.insert(spec.bits);
      loops += loop ? 1 : 0;
    }
    auto grams = std::make_shared<internal::BlockGrams>();
    double weights = 0;
    for (size_t i = 0; i < linears_.size(); ++i) {
      const int64_t m = linears_[i].outputs, d = linears_[i].inputs;
      weights += Product(m, d);
      part.flop += (loops > 0 ? Product(d, d, d) / 3 : 0) +
                   (loops + static_cast<double>(widths.size()) + 1) * Product(m, d, d);
    }
    grams->range = {.first = 0, .end = linears_.size()};
    grams->tokens = tokens();
    std::map<int, size_t> known;
    for (const DecoderLinear& linear : linears_) {
      const auto [found, added] = known.try_emplace(linear.input, known.size());
      grams->of_linear.push_back(found->second);
      if (!added) continue;
      if (!with_statistics) {
        grams->grams.push_back(nullptr);
        continue;
      }
      auto sum = OrFail(backend_.Sum(linear.inputs), "Gram");
      Check(
          sum->Add({.tensor = at::randn({2 * linear.inputs, linear.inputs}), .form = {}}, context_),
          "Gram");
      grams->grams.push_back(OrFail(sum->Take(context_), "Gram"));
    }
    part.name = with_statistics ? "quantizers" : "rounding";
    part.times = blocks_;
    part.work = [=, this] {
      std::vector<internal::QuantizedBlock> results(specs.size(), internal::QuantizedBlock(block_));
      Check(internal::QuantizeLinears(block_, linears_, *grams, specs, {}, backend_, context_,
                                      results),
            "quantizers");
      for (const internal::QuantizedBlock& result : results) Check(result.status, "a quantizer");
    };
    if (with_statistics) {
      const Part linears = Linears();
      part.peer_flop = linears.flop;
      part.peer = linears.peer;
      return part;
    }
    part.flop = 0;
    part.bytes = part.peer_bytes = 9 * weights * static_cast<double>(specs.size());
    part.peer = [=, this] {  // reads four bytes of a weight and writes four; codes are one more
      for (size_t spec = 0; spec < specs.size(); ++spec) {
        for (const at::Tensor& weight : block_.weights()) {
          at::empty_like(weight).copy_(weight);
          at::empty(weight.sizes(), at::kByte).fill_(1);
        }
      }
    };
    return part;
  }

  // Each draw is of all weights of a block; the peer copies.
  Part Noise() const {
    double weights = 0;
    for (const at::Tensor& weight : block_.weights())
      weights += static_cast<double>(weight.numel());
    return {
        .name = "noise",
        .bytes = 8 * weights,
        .peer_bytes = 8 * weights,
        .times = blocks_ * draws_,
        .work =
            [this] {
              for (size_t i = 0; i < linears_.size(); ++i) {
                Check(internal::NoisyWeight(block_.weights()[i], 0.1, linears_[i].name, 0, context_)
                          .status(),
                      "noise");
              }
            },
        .peer =
            [this] {
              for (const at::Tensor& weight : block_.weights()) {
                at::empty_like(weight).copy_(weight);
              }
            }};
  }

  Part Head() const {
    const internal::ModelConfig& config = decoder_.config();
    auto head = std::make_shared<internal::DecoderHead>(OrFail(decoder_.ReadHead(), "head"));
    const at::Tensor hidden = at::randn({sequences_, length_, config.hidden});
    const at::Tensor targets = at::randint(config.vocabulary, {sequences_, length_}, at::kLong);
    const at::Tensor weight = at::randn({config.vocabulary, config.hidden});
    const int64_t rows = std::min<int64_t>(128, tokens());
    const at::Tensor x = at::randn({rows, config.hidden});
    at::Tensor logits = at::zeros({rows, config.vocabulary});
    return {.name = "head",
            .flop = 2 * Product(tokens(), config.vocabulary, config.hidden),
            .peer_flop = 2 * Product(rows, config.vocabulary, config.hidden),
            .times = heads_,
            .work = [=] { head->TokenLosses(hidden, targets); },
            .peer = [=]() mutable { at::mm_out(logits, x, weight.t()); }};
  }

  const internal::Decoder& decoder_;
  const internal::CheckpointMeasurement& options_;
  const internal::DecoderBlock block_;
  const std::vector<DecoderLinear> linears_;
  const int64_t length_;
  const int64_t sequences_;
  const double blocks_;
  double draws_ = 0;
  double passes_ = 0;  // of tokens that are computed at a time, through a block
  double sums_ = 0;    // of those that also feed Gram matrices
  double heads_ = 0;   // through the head
  ExecutionContext context_;
  internal::HostBackend backend_;
};

}  // namespace

void PrintFloors(const internal::Decoder& decoder, const internal::TrajectoryData& data,
                 const internal::CheckpointMeasurement& options, int threads, int repeats) {
  const at::NoGradGuard no_grad;
  Floors floors(decoder, data, options, threads);
  const bool wall = threads > 1;
  std::printf(
      "a block of %lld, %d thread(s), %d interleaved repeats of %s time\n"
      "part | times | GFLOP | GB | seconds | GFLOP/s | GB/s | share of the peer |\n",
      static_cast<long long>(decoder.blocks()), threads, repeats, wall ? "wall" : "CPU");
  for (const std::function<Part()>& make : floors.Parts()) {
    const Part part = make();
    Times work, peer;
    for (int i = 0; i < repeats; ++i) {
      work.Time(wall, part.work);
      peer.Time(wall, part.peer);
    }
    const double amount = part.flop > 0 ? part.flop : part.bytes;
    const double of_peer = part.peer_flop > 0 ? part.peer_flop : part.peer_bytes;
    const Spread share = SpreadOf(
        work.repeats(), [&](size_t i) { return amount / work.at(i) / (of_peer / peer.at(i)); });
    std::printf("%s | %.0f | %.1f | %.2f | %.1f | %.1f | %.2f | %s |\n", part.name.c_str(),
                part.times, 1e-9 * part.flop * part.times, 1e-9 * part.bytes * part.times,
                work.seconds() * part.times, 1e-9 * part.flop / work.seconds(),
                1e-9 * part.bytes / work.seconds(), Ratio(share).c_str());
    std::fflush(stdout);
  }
}

}  // namespace ptqwatch::benchmarks
