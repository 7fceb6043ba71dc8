// That both products of every layer of an LSTM are seen, in the fused operator and outside of it,
// with the Grams of cells written by hand.
#include <gmock/gmock.h>

#include <algorithm>

#include "ATen/ops/cat.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/lstm.h"
#include "ATen/ops/sigmoid.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tanh.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace recurrent_forms_test {

constexpr int64_t kInputs = 5;
constexpr int64_t kHidden = 4;
constexpr int64_t kSequences = 3;

struct Lstm {
  const char* name;
  int64_t layers = 1;
  bool bidirectional = false;
  int64_t projection = 0;  // 0: none
  bool biases = true;
  bool batch_first = false;
  bool packed = false;
  int64_t steps = 6;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t state() const { return projection > 0 ? projection : kHidden; }
};

void PrintTo(const Lstm& lstm, std::ostream* out) { *out << lstm.name; }

// In the order in which at::lstm takes them: w_ih, w_hh, the biases, w_hr.
std::vector<NamedTensor> Parameters(const Lstm& lstm) {
  std::vector<NamedTensor> parameters;
  for (int64_t layer = 0; layer < lstm.layers; ++layer) {
    for (int64_t direction = 0; direction < lstm.directions(); ++direction) {
      const std::string at = std::to_string(layer) + (direction == 1 ? "r" : "");
      const auto add = [&](const char* name, std::vector<int64_t> sizes) {
        parameters.push_back({name + at, Random(std::move(sizes), 10 + parameters.size())});
      };
      add("w_ih", {4 * kHidden, layer == 0 ? kInputs : lstm.state() * lstm.directions()});
      add("w_hh", {4 * kHidden, lstm.state()});
      if (lstm.biases) add("b_ih", {4 * kHidden});
      if (lstm.biases) add("b_hh", {4 * kHidden});
      if (lstm.projection > 0) add("w_hr", {lstm.projection, kHidden});
    }
  }
  return parameters;
}

// The steps that each sequence has; those of a packed batch differ.
std::vector<int64_t> Lengths(const Lstm& lstm) {
  return lstm.packed ? std::vector<int64_t>{lstm.steps, lstm.steps - 2, 1}
                     : std::vector<int64_t>(kSequences, lstm.steps);
}

// The steps of all sequences, the longest first, as pack_padded_sequence gives them.
std::pair<at::Tensor, at::Tensor> Packed(const Lstm& lstm, const at::Tensor& x) {
  std::vector<at::Tensor> steps;
  std::vector<int64_t> sizes;
  for (int64_t t = 0; t < lstm.steps; ++t) {
    int64_t live = 0;
    for (int64_t length : Lengths(lstm)) live += length > t ? 1 : 0;
    sizes.push_back(live);
    steps.push_back(x.select(0, t).narrow(0, 0, live));
  }
  return {at::cat(steps), at::tensor(sizes)};
}

// `batch` has the sequences [T, B, inputs] and both states.
LossValues Losses(const Lstm& lstm, const TensorMap& weights, const Batch& batch) {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& named : Parameters(lstm)) parameters.push_back(weights.at(named.name));
  const std::vector<at::Tensor> states = {batch[1], batch[2]};
  if (lstm.packed) {
    const auto [data, sizes] = Packed(lstm, batch[0]);
    return std::get<0>(at::lstm(data, sizes, states, parameters, lstm.biases, lstm.layers, 0, false,
                                lstm.bidirectional))
        .sum()
        .reshape({1});
  }
  const at::Tensor x = lstm.batch_first ? batch[0].transpose(0, 1) : batch[0];
  return std::get<0>(at::lstm(x, states, parameters, lstm.biases, lstm.layers, 0, false,
                              lstm.bidirectional, lstm.batch_first))
      .sum()
      .reshape({1});
}

// The rows that each weight is multiplied with.
using Rows = std::map<std::string, std::vector<at::Tensor>>;

// One direction of a layer over one sequence [T, d] from the states `h` and `c`; the outputs.
at::Tensor RunCells(const Lstm& lstm, const std::map<std::string, at::Tensor>& weights,
                    const std::string& at, bool backwards, const at::Tensor& sequence, at::Tensor h,
                    at::Tensor c, Rows& rows) {
  std::vector<at::Tensor> steps = sequence.unbind(0);
  if (backwards) std::reverse(steps.begin(), steps.end());
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& x : steps) {
    rows["w_ih" + at].push_back(x);
    rows["w_hh" + at].push_back(h);
    at::Tensor gates =
        at::linear(x, weights.at("w_ih" + at)) + at::linear(h, weights.at("w_hh" + at));
    if (lstm.biases) gates = gates + weights.at("b_ih" + at) + weights.at("b_hh" + at);
    const std::vector<at::Tensor> gate = gates.chunk(4);
    c = at::sigmoid(gate[1]) * c + at::sigmoid(gate[0]) * at::tanh(gate[2]);
    h = at::sigmoid(gate[3]) * at::tanh(c);
    if (lstm.projection > 0) {
      rows["w_hr" + at].push_back(h);
      h = at::linear(h, weights.at("w_hr" + at));
    }
    outputs.push_back(h);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return at::stack(outputs);
}

Rows RowsOf(const Lstm& lstm, const Batch& batch) {
  std::map<std::string, at::Tensor> weights;
  for (const NamedTensor& named : Parameters(lstm)) weights[named.name] = named.tensor;
  Rows rows;
  const std::vector<int64_t> lengths = Lengths(lstm);
  for (int64_t b = 0; b < kSequences; ++b) {
    at::Tensor x = batch[0].select(1, b).narrow(0, 0, lengths[static_cast<size_t>(b)]);
    for (int64_t layer = 0; layer < lstm.layers; ++layer) {
      std::vector<at::Tensor> outputs;
      for (int64_t direction = 0; direction < lstm.directions(); ++direction) {
        const int64_t state = layer * lstm.directions() + direction;
        outputs.push_back(RunCells(
            lstm, weights, std::to_string(layer) + (direction == 1 ? "r" : ""), direction == 1, x,
            batch[1].select(0, state).select(0, b), batch[2].select(0, state).select(0, b), rows));
      }
      x = at::cat(outputs, -1);
    }
  }
  return rows;
}

class EveryLstm : public ::testing::TestWithParam<Lstm> {};

TEST_P(EveryLstm, HasTheGramsOfItsCells) {
  const Lstm& lstm = GetParam();
  std::vector<Batch> batches;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const int64_t states = lstm.layers * lstm.directions();
    batches.push_back({Random({lstm.steps, kSequences, kInputs}, seed),
                       Random({states, kSequences, lstm.state()}, seed + 2),
                       Random({states, kSequences, kHidden}, seed + 4)});
  }
  Fixture fixture(batches, Parameters(lstm),
                  [&lstm](const TensorMap& w, const Batch& b) { return Losses(lstm, w, b); });
  const CapturePlan plan = fixture.Plan();
  Rows rows;
  for (const Batch& batch : batches) {
    for (auto& [name, of_batch] : RowsOf(lstm, batch)) {
      rows[name].insert(rows[name].end(), of_batch.begin(), of_batch.end());
    }
  }
  ASSERT_EQ(plan.layers.size(), rows.size()) << ::testing::PrintToString(Reasons(plan));
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  for (const CoveredLayer& layer : plan.layers) {
    SCOPED_TRACE(layer.name);
    ASSERT_EQ(rows.count(layer.name), 1u);
    const GramStatistics& gram = grams[static_cast<size_t>(layer.gram)];
    EXPECT_EQ(gram.tokens, static_cast<int64_t>(rows[layer.name].size()));
    ExpectGram(gram, NaiveGram(rows[layer.name]));
    EXPECT_FALSE(layer.transposed);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EveryLstm,
    ::testing::Values(Lstm{.name = "Plain"}, Lstm{.name = "OneStep", .steps = 1},
                      Lstm{.name = "WithoutBiases", .biases = false},
                      Lstm{.name = "BatchFirst", .batch_first = true},
                      Lstm{.name = "TwoLayersBothWays", .layers = 2, .bidirectional = true},
                      Lstm{.name = "Projected", .layers = 2, .projection = 2},
                      Lstm{.name = "Packed", .layers = 2, .bidirectional = true, .packed = true}),
    [](const auto& form) { return std::string(form.param.name); });

TEST(RecurrentForms, AreMostOfALanguageModel) {
  static const Lstm lstm{.name = "", .layers = 2};
  std::vector<NamedTensor> parameters = Parameters(lstm);
  parameters.push_back({"embedding", Random({9, kInputs}, 1)});
  parameters.push_back({"head", Random({9, kHidden}, 2)});
  const at::Tensor ids = at::tensor({3, 1, 4, 1, 5, 8}).reshape({2, 3});  // [T, B]
  Fixture fixture({{ids, at::zeros({2, 3, kHidden}), at::zeros({2, 3, kHidden})}}, parameters,
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    std::vector<at::Tensor> of_lstm;
                    for (const NamedTensor& p : Parameters(lstm)) of_lstm.push_back(w.at(p.name));
                    const at::Tensor x = at::embedding(w.at("embedding"), b[0]);
                    const at::Tensor y = std::get<0>(
                        at::lstm(x, {b[1], b[2]}, of_lstm, true, 2, 0, false, false, false));
                    return at::linear(y, w.at("head")).sum(-1).t();
                  });
  const CapturePlan plan = fixture.Plan();
  const auto share = static_cast<double>(plan.covered_parameters) /
                     static_cast<double>(fixture.replica->table().parameters());
  EXPECT_GT(share, 0.7);
  EXPECT_EQ(plan.layers.size(), 5u);
  EXPECT_EQ(Reasons(plan)["embedding"], "embedding");
}

TEST(RecurrentForms, KeepOneGramForBothDirections) {
  static const Lstm lstm{.name = "", .bidirectional = true};
  Fixture fixture({{Random({4, kSequences, kInputs}, 1), Random({2, kSequences, kHidden}, 2),
                    Random({2, kSequences, kHidden}, 3)}},
                  Parameters(lstm),
                  [](const TensorMap& w, const Batch& b) { return Losses(lstm, w, b); });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u);
  EXPECT_EQ(plan.gram_inputs, (std::vector<int64_t>{kInputs, kHidden, kHidden}));
}

}  // namespace recurrent_forms_test
}  // namespace ptqwatch::internal
