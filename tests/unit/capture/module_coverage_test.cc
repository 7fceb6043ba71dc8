// docs/modules.md: which weights of which modules of torch::nn, and of which operators, are
// covered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ATen/ops/_native_multi_head_attention.h"
#include "ATen/ops/_transformer_encoder_layer_fwd.h"
#include "base/strings.h"
#include "capture_fixture.h"
#include "torch/nn.h"

namespace ptqwatch::internal {
namespace module_coverage_test {

namespace nn = torch::nn;

constexpr char kPath[] = PTQWATCH_SOURCE_DIR "/docs/modules.md";
constexpr char kIntroduction[] =
    R"(# Modules

<!-- Generated from tests/unit/capture/module_coverage_test.cc: PTQWATCH_WRITE_DOCS=1 capture_test -->

Which weights of LibTorch's modules are quantized, found by running each of them on the CPU, in evaluation and in training mode. A weight is covered if the forward pass
multiplies activations with it by an operator that the capture knows ([quantizers](quantizers.md#a-whole-model)); parameters with one dimension (biases, most norms) stay as
they are. `Monitor::Describe` and the report's `skipped_layers` give the same reasons for your own model.

)";
constexpr char kOperators[] = R"(
The same for operators that are called without a module:

)";
constexpr char kRemarks[] = R"(
- The LSTM of a CPU runs in oneDNN (`mkldnn_rnn_layer`), a layer and direction at a time. The rows of `weight_ih` are the layer's inputs, those of `weight_hh` the initial
  state and the outputs of all steps but the last. Packed sequences and projections take ATen's own cells, which are seen as they are.
- A transposed convolution counts as the product of each pixel with the weight `[C, O * kernel]`, a bilinear form as that of its second input with `[O * in1, in2]`.
- An expert to which the first calibration batch sends no token is looked for in the next seven. If none of the eight does, and the model leaves out the product, it is not a layer:
  "no operator of the forward pass takes it".
- An embedding is quantized if `layers.embeddings` is set. Its entries count alike, in codes and in the layer's losses: GPTQ and AWQ round it to nearest. If it is also multiplied, it has the
  statistics of its products; if that is the output head, `layers.output_head` decides. Both uses then read the quantized matrix, as they do in the file that is deployed.
- A weight that a forward pass uses several times, such as that of a looped block, is one layer; its Gram matrix sums the inputs of all uses.
- A weight that the forward pass quantizes itself (quantization-aware training) is left out, with the operator that hides it. If it does so only while `self.training` is set, the weights that the
  optimizer updates are measured: the monitor evaluates.
- A grouped or depthwise convolution is left out: each group would be a layer with statistics of its own, and a report of a small MobileNet would list thousands.
- Which operator is named as the one that hides a weight is LibTorch's choice and differs between devices: on a GPU the layers of an LSTM or a GRU are inside `aten::_cudnn_rnn`.
- Weights that were packed or converted before the forward pass (`quantized::linear_prepack`, an AOTInductor package) are in no operator's arguments: "no operator of the
  forward pass takes it".
)";

// From here on, the page is of tests/python/test_experts.py.
constexpr char kExperts[] = "\n## Mixtures of experts\n";

/// A module or an operator that is run with parameters of those names.
struct Case {
  std::string text;
  std::vector<NamedTensor> parameters;
  Batch batch;
  std::function<at::Tensor(const TensorMap&, const Batch&)> forward;
  std::function<void(bool train)> set_mode = [](bool) {};
};

/// `forward` gets the module and the batch.
template <typename Holder, typename Forward>
Case Module(std::string text, Holder module, Batch batch, Forward forward) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module->named_parameters()) {
    parameters.push_back({item.key(), item.value().detach().clone()});
  }
  return {std::move(text), std::move(parameters), std::move(batch),
          [module, forward](const TensorMap& w, const Batch& b) mutable {
            // The replica's own memory.
            for (auto& item : module->named_parameters()) item.value().set_data(w.at(item.key()));
            return forward(module, b);
          },
          [module](bool train) mutable { module->train(train); }};
}

/// One that maps a tensor to a tensor.
template <typename Holder>
Case Simple(std::string text, Holder module, std::vector<int64_t> sizes) {
  return Module(std::move(text), std::move(module), {Random(std::move(sizes), 1)},
                [](auto& m, const Batch& b) { return m->forward(b[0]); });
}

/// The weights left out, with the reasons, in the order of the parameters; empty if none is.
std::string LeftOut(const Case& tested, bool train) {
  std::vector<NamedTensor> parameters = tested.parameters;
  parameters.push_back({"body", Random({2, 3}, 99)});  // so that there is a layer
  tested.set_mode(train);
  Fixture fixture({tested.batch}, std::move(parameters),
                  [&](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor body = w.at("body");
                    return tested.forward(w, b).square().sum().reshape({1}) +
                           at::linear(at::ones({1, 3}), body).sum();
                  });
  if (!fixture.replica) return "it cannot be run";
  std::vector<std::pair<std::string, std::string>> reasons;  // with the names that they are for
  for (const SkippedLayer& skipped : fixture.Plan().skipped) {
    if (skipped.reason == kNotAMatrix) continue;
    const std::string name = StrCat("`", skipped.name, "`");
    if (!reasons.empty() && reasons.back().first == skipped.reason) {
      reasons.back().second += StrCat(", ", name);
    } else {
      reasons.emplace_back(skipped.reason, name);
    }
  }
  std::string text;
  for (const auto& [reason, names] : reasons) {
    text += StrCat(text.empty() ? "" : "; ", names, ": ", reason);
  }
  return text;
}

std::string Row(const Case& tested) {
  const auto weights =
      std::count_if(tested.parameters.begin(), tested.parameters.end(),
                    [](const NamedTensor& named) { return named.tensor.dim() >= 2; });
  const std::string evaluation = LeftOut(tested, false);
  const std::string training = LeftOut(tested, true);
  std::string text = evaluation;
  if (training != evaluation) text = StrCat(evaluation, "; in training mode ", training);
  const char* covered = weights == 0 ? "no weights" : text.empty() ? "yes" : "left out: ";
  return StrCat("| ", tested.text, " | ", covered, text, " |\n");
}

const std::vector<int64_t> kSequences = {4, 3, 6};  // [T, B, d]

template <typename Holder>
Case Recurrent(std::string text, Holder module) {
  return Module(std::move(text), std::move(module), {Random(kSequences, 1)},
                [](auto& m, const Batch& b) { return std::get<0>(m->forward(b[0])); });
}

template <typename Holder>
Case RecurrentPacked(std::string text, Holder module) {
  return Module(
      std::move(text), std::move(module), {Random(kSequences, 1)}, [](auto& m, const Batch& b) {
        const auto packed = nn::utils::rnn::pack_padded_sequence(b[0], at::tensor({4, 3, 1}));
        return std::get<0>(m->forward_with_packed_input(packed)).data();
      });
}

void AddConvolutions(std::vector<Case>& cases) {
  cases.push_back(Simple("`Conv1d`", nn::Conv1d(nn::Conv1dOptions(4, 6, 3)), {2, 4, 9}));
  cases.push_back(Simple("`Conv2d`", nn::Conv2d(nn::Conv2dOptions(4, 6, 3)), {2, 4, 9, 8}));
  cases.push_back(Simple(
      "`Conv2d`, `padding(torch::kSame)`, `kCircular`",
      nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(torch::kSame).padding_mode(torch::kCircular)),
      {2, 4, 9, 8}));
  cases.push_back(Simple("`Conv3d`", nn::Conv3d(nn::Conv3dOptions(4, 6, 2)), {2, 4, 5, 4, 3}));
  cases.push_back(Simple("`Conv2d`, `groups(2)`", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2)),
                         {2, 4, 9, 8}));
  cases.push_back(Simple("`Conv2d`, depthwise", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(4)),
                         {2, 4, 9, 8}));
  cases.push_back(Simple("`ConvTranspose1d`",
                         nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3)), {2, 4, 9}));
  cases.push_back(Simple("`ConvTranspose2d`",
                         nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).stride(2)),
                         {2, 4, 5, 4}));
  cases.push_back(Simple("`ConvTranspose3d`",
                         nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, 2)),
                         {2, 4, 3, 4, 2}));
  cases.push_back(Simple("`ConvTranspose2d`, `groups(2)`",
                         nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).groups(2)),
                         {2, 4, 5, 4}));
}

void AddRecurrent(std::vector<Case>& cases) {
  cases.push_back(Recurrent("`RNN`, tanh", nn::RNN(nn::RNNOptions(6, 5))));
  cases.push_back(Recurrent("`RNN`, `nonlinearity(torch::kReLU)`",
                            nn::RNN(nn::RNNOptions(6, 5).nonlinearity(torch::kReLU))));
  cases.push_back(Recurrent("`LSTM`", nn::LSTM(nn::LSTMOptions(6, 5))));
  cases.push_back(Recurrent(
      "`LSTM`, `num_layers(2)`, `bidirectional`, `batch_first`",
      nn::LSTM(nn::LSTMOptions(6, 5).num_layers(2).bidirectional(true).batch_first(true))));
  cases.push_back(
      Recurrent("`LSTM`, `proj_size(3)`", nn::LSTM(nn::LSTMOptions(6, 5).proj_size(3))));
  cases.push_back(
      RecurrentPacked("`LSTM`, packed sequences", nn::LSTM(nn::LSTMOptions(6, 5).num_layers(2))));
  cases.push_back(Recurrent("`GRU`", nn::GRU(nn::GRUOptions(6, 5))));
  cases.push_back(
      Recurrent("`GRU`, `num_layers(2)`, `bidirectional`, `batch_first`",
                nn::GRU(nn::GRUOptions(6, 5).num_layers(2).bidirectional(true).batch_first(true))));
  cases.push_back(RecurrentPacked("`GRU`, packed sequences", nn::GRU(nn::GRUOptions(6, 5))));
  cases.push_back(Simple("`RNNCell`", nn::RNNCell(6, 5), {3, 6}));
  cases.push_back(Module("`LSTMCell`", nn::LSTMCell(6, 5), {Random({3, 6}, 1)},
                         [](auto& m, const Batch& b) { return std::get<0>(m->forward(b[0])); }));
  cases.push_back(Simple("`GRUCell`", nn::GRUCell(6, 5), {3, 6}));
}

void AddTransformers(std::vector<Case>& cases) {
  const auto attention = [](const char* text, nn::MultiheadAttentionOptions options, bool self) {
    return Module(text, nn::MultiheadAttention(options),
                  {Random(kSequences, 1), Random({5, 3, 6}, 2)}, [self](auto& m, const Batch& b) {
                    const at::Tensor& memory = self ? b[0] : b[1];
                    return std::get<0>(m->forward(b[0], memory, memory));
                  });
  };
  using Attention = nn::MultiheadAttentionOptions;
  cases.push_back(attention("`MultiheadAttention`, to itself", Attention(6, 2), true));
  cases.push_back(attention("`MultiheadAttention`, to another sequence", Attention(6, 2), false));
  cases.push_back(
      attention("`MultiheadAttention`, `add_bias_kv`", Attention(6, 2).add_bias_kv(true), false));
  cases.push_back(
      Module("`MultiheadAttention`, `kdim(5)`, `vdim(5)`",
             nn::MultiheadAttention(Attention(6, 2).kdim(5).vdim(5)),
             {Random(kSequences, 1), Random({5, 3, 5}, 2)},
             [](auto& m, const Batch& b) { return std::get<0>(m->forward(b[0], b[1], b[1])); }));
  const auto encoder = nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(8).dropout(0.0);
  const auto decoder = nn::TransformerDecoderLayerOptions(6, 2).dim_feedforward(8).dropout(0.0);
  const auto decode = [](auto& m, const Batch& b) { return m->forward(b[0], b[1]); };
  const Batch pair = {Random(kSequences, 1), Random({5, 3, 6}, 2)};
  cases.push_back(
      Simple("`TransformerEncoderLayer`", nn::TransformerEncoderLayer(encoder), kSequences));
  cases.push_back(
      Module("`TransformerDecoderLayer`", nn::TransformerDecoderLayer(decoder), pair, decode));
  cases.push_back(Simple("`TransformerEncoder`",
                         nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2)),
                         kSequences));
  cases.push_back(Module("`TransformerDecoder`",
                         nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder, 2)), pair,
                         decode));
  cases.push_back(
      Module("`Transformer`",
             nn::Transformer(nn::TransformerOptions(6, 2, 1, 1).dim_feedforward(8).dropout(0.0)),
             pair, decode));
}

void AddOthers(std::vector<Case>& cases) {
  const Batch ids = {at::tensor({1, 4, 2, 0}).reshape({2, 2})};
  const auto look_up = [](auto& m, const Batch& b) { return m->forward(b[0]); };
  cases.push_back(Simple("`Linear`", nn::Linear(6, 5), kSequences));
  cases.push_back(Module("`Bilinear`", nn::Bilinear(6, 5, 4),
                         {Random({3, 6}, 1), Random({3, 5}, 2)},
                         [](auto& m, const Batch& b) { return m->forward(b[0], b[1]); }));
  cases.push_back(Module("`Embedding`", nn::Embedding(9, 6), ids, look_up));
  cases.push_back(Module("`EmbeddingBag`", nn::EmbeddingBag(9, 6), ids, look_up));
  cases.push_back(Module("`AdaptiveLogSoftmaxWithLoss`",
                         nn::AdaptiveLogSoftmaxWithLoss(
                             nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {4, 8}).div_value(2.0)),
                         {Random({3, 8}, 1), at::tensor({1, 5, 10})},
                         [](auto& m, const Batch& b) { return m->forward(b[0], b[1]).output; }));
  cases.push_back(Simple("`LayerNorm`", nn::LayerNorm(nn::LayerNormOptions({6})), kSequences));
  cases.push_back(Simple("`LayerNorm` over two dimensions",
                         nn::LayerNorm(nn::LayerNormOptions({3, 6})), kSequences));
  cases.push_back(Simple("`GroupNorm`", nn::GroupNorm(nn::GroupNormOptions(2, 4)), {2, 4, 5}));
  cases.push_back(Simple("`BatchNorm1d`, `2d`, `3d`", nn::BatchNorm2d(4), {2, 4, 5, 3}));
  cases.push_back(Simple("`InstanceNorm1d`, `2d`, `3d`",
                         nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true)),
                         {2, 4, 5, 3}));
  cases.push_back(Simple("`PReLU`", nn::PReLU(nn::PReLUOptions().num_parameters(4)), {2, 4, 5}));
}

std::vector<Case> Modules() {
  std::vector<Case> cases;
  AddConvolutions(cases);
  AddRecurrent(cases);
  AddTransformers(cases);
  AddOthers(cases);
  return cases;
}

/// An operator of a weight "w" and an input [4, 3, 6].
Case Operator(std::string text, std::vector<int64_t> weight,
              std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)> use) {
  return {
      std::move(text),
      {{"w", Random(std::move(weight), 7)}},
      {Random(kSequences, 1)},
      [use = std::move(use)](const TensorMap& w, const Batch& b) { return use(b[0], w.at("w")); }};
}

using Tensor = at::Tensor;

Tensor Flat(const Tensor& x) { return x.reshape({12, 6}); }
Tensor Images(const Tensor& x) { return x.reshape({1, 2, 6, 6}); }

std::vector<Case> Products() {
  return {
      Operator("`linear`", {5, 6}, [](auto& x, auto& w) { return at::linear(x, w); }),
      Operator("`matmul`", {6, 5}, [](auto& x, auto& w) { return at::matmul(x, w); }),
      Operator("`addmm`", {6, 5},
               [](auto& x, auto& w) { return at::addmm(at::zeros({5}), Flat(x), w); }),
      Operator("`einsum`", {5, 6},
               [](auto& x, auto& w) {
                 return at::einsum("tbi,oi->tbo", {x, w});
               }),
      Operator("`tensordot`", {5, 6},
               [](auto& x, auto& w) { return at::tensordot(x, w, {2}, {1}); }),
      Operator("`inner`", {5, 6}, [](auto& x, auto& w) { return at::inner(x, w); }),
      Operator("`linalg_multi_dot`", {6, 5},
               [](auto& x, auto& w) {
                 return at::linalg_multi_dot({Flat(x), w, at::ones({5, 20})});
               }),
      Operator("`addbmm` of an expanded weight", {6, 5},
               [](auto& x, auto& w) {
                 return at::addbmm(at::zeros({3, 5}), x, w.expand({4, 6, 5}));
               }),
  };
}

std::vector<Case> FusedOperators() {
  const auto encode = [](const Tensor& x, const Tensor& w) {
    const Tensor ones = at::ones({6}), zeros = at::zeros({6});
    return at::_transformer_encoder_layer_fwd(x, 6, 2, w.view({18, 6}), at::zeros({18}), at::eye(6),
                                              zeros, false, false, 1e-5, ones, zeros, ones, zeros,
                                              at::eye(6), zeros, at::eye(6), zeros);
  };
  const auto attend = [](const Tensor& x, const Tensor& w) {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, 6, 2, w, at::zeros({18}),
                                                        at::eye(6), at::zeros({6})));
  };
  const auto keys = [](const Tensor& x, const Tensor& w) {
    const Tensor memory = w.view({1, 1, 6, 6});
    return at::scaled_dot_product_attention(x.reshape({1, 1, 12, 6}), memory, memory);
  };
  return {
      Operator("`bmm` of stacked weights", {4, 6, 5},
               [](auto& x, auto& w) { return at::bmm(x, w); }),
      Operator("`_convolution`", {3, 2, 3, 3},
               [](auto& x, auto& w) {
                 return at::_convolution(Images(x), w, {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1,
                                         false, false, true, true);
               }),
      Operator("`mkldnn_convolution`", {3, 2, 3, 3},
               [](auto& x, auto& w) {
                 return at::mkldnn_convolution(Images(x), w, {}, {0, 0}, {1, 1}, {1, 1}, 1);
               }),
      Operator("`mkldnn_linear`", {5, 6},
               [](auto& x, auto& w) {
                 return at::mkldnn_linear(x.to_mkldnn(), w.to_mkldnn()).to_dense();
               }),
      Operator("`_native_multi_head_attention`", {18, 6}, attend),
      Operator("`_transformer_encoder_layer_fwd`", {18, 6}, encode),
      Operator("`scaled_dot_product_attention` to a parameter", {6, 6}, keys),
  };
}

std::vector<Case> OtherOperators() {
  return {
      Operator("`quantize_per_tensor` before a product", {5, 6},
               [](auto& x, auto& w) {
                 const Tensor codes = at::quantize_per_tensor(w, 0.1, 0, at::kQInt8);
                 return at::linear(x, codes.dequantize());
               }),
      Operator("`fbgemm_pack_gemm_matrix_fp16`", {5, 6},
               [](auto& x, auto& w) {
                 return at::fbgemm_linear_fp16_weight(x, at::fbgemm_pack_gemm_matrix_fp16(w),
                                                      at::zeros({5}));
               }),
      Operator("a weight that is scaled, masked or normalised first", {5, 6},
               [](auto& x, auto& w) { return at::linear(x, w * 2); }),
      Operator("`_weight_norm`", {5, 6},
               [](auto& x, auto& w) {
                 return at::linear(x, at::_weight_norm(w, at::ones({5, 1}), 0));
               }),
      Operator("`linalg_solve`", {6, 6},
               [](auto& x, auto& w) { return at::linalg_solve(w, Flat(x).t()); }),
      Operator("`cdist` to a code book", {5, 6}, [](auto& x, auto& w) { return at::cdist(x, w); }),
      Operator("`add`: an embedding of positions", {3, 6}, [](auto& x, auto& w) { return x + w; }),
      Operator("`cat`: a class token", {1, 3, 6},
               [](auto& x, auto& w) {
                 return at::cat({w, x}, 0);
               }),
  };
}

// With PTQWATCH_WRITE_DOCS set, writes the page instead of comparing it.
TEST(ModuleCoverage, IsThatOfThePage) {
  std::string page = StrCat(kIntroduction, "| module | weights covered |\n| --- | --- |\n");
  for (const Case& tested : Modules()) page += Row(tested);
  page += StrCat(kOperators, "| operator | weight covered |\n| --- | --- |\n");
  for (const std::vector<Case>& cases : {Products(), FusedOperators(), OtherOperators()}) {
    for (const Case& tested : cases) page += Row(tested);
  }
  page += kRemarks;
  std::stringstream text;
  text << std::ifstream(kPath).rdbuf();
  const std::string before = text.str();
  const size_t experts = before.find(kExperts);
  ASSERT_NE(experts, std::string::npos);
  if (std::getenv("PTQWATCH_WRITE_DOCS") != nullptr) {
    std::ofstream(kPath) << page << before.substr(experts);
    return;
  }
  EXPECT_EQ(before.substr(0, experts), page)
      << "docs/modules.md is out of date: see its comment. Expected:\n"
      << page;
}

}  // namespace module_coverage_test
}  // namespace ptqwatch::internal
