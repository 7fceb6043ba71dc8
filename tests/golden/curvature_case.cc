#include "golden/curvature_case.h"

#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "curvature/eigenpair.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/replica_surface.h"
#include "golden/golden_file.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::testing {
namespace {

using internal::HessianOperator;
using internal::StrCat;
using internal::Vector;
using TensorMap = std::map<std::string, at::Tensor>;

constexpr int kHutchinsonProbes = 64;

struct Model {
  std::string kind;
  std::string loss_kind;
  int heads = 1;
  std::vector<std::string> order;  // of the parameters
  TensorMap parameters;            // float64
  Batch batch;                     // inputs or tokens, targets
};

absl::StatusOr<at::Tensor> ReadTensor(const GoldenFile& file, const std::string& name) {
  const absl::StatusOr<std::vector<int64_t>> shape = file.Shape(name);
  if (!shape.ok()) return shape.status();
  if (const auto doubles = file.Doubles(name, *shape); doubles.ok()) {
    return at::from_blob(const_cast<double*>(doubles->data()), *shape, at::kDouble).clone();
  }
  const auto integers = file.Int64s(name, *shape);
  if (!integers.ok()) return integers.status();
  return at::from_blob(const_cast<int64_t*>(integers->data()), *shape, at::kLong).clone();
}

absl::StatusOr<Model> ReadModel(const GoldenFile& file) {
  Model model;
  absl::StatusOr<std::string> kind = file.Text("model");
  absl::StatusOr<std::string> loss_kind = file.Text("loss_kind");
  absl::StatusOr<std::string> order = file.Text("parameter_order");
  for (const auto* text : {&kind, &loss_kind, &order}) {
    if (!text->ok()) return text->status();
  }
  model.kind = *kind;
  model.loss_kind = *loss_kind;
  if (model.kind != "mlp" && model.kind != "attention") {
    return absl::DataLossError(StrCat("unknown model '", model.kind, "'"));
  }
  if (model.kind == "attention") {
    const absl::StatusOr<int> heads = file.Integer("heads");
    if (!heads.ok()) return heads.status();
    model.heads = *heads;
  }
  for (const auto name : absl::StrSplit(*order, ',')) {
    model.order.emplace_back(name);
    absl::StatusOr<at::Tensor> tensor = ReadTensor(file, StrCat("param.", model.order.back()));
    if (!tensor.ok()) return tensor.status();
    model.parameters[model.order.back()] = *tensor;
  }
  for (const char* name :
       {model.kind == "mlp" ? "batch.inputs" : "batch.tokens", "batch.targets"}) {
    absl::StatusOr<at::Tensor> tensor = ReadTensor(file, name);
    if (!tensor.ok()) return tensor.status();
    model.batch.push_back(*tensor);
  }
  return model;
}

at::Tensor MlpLosses(const Model& model, const TensorMap& p, const Batch& batch) {
  const size_t layers = model.order.size() / 2;
  at::Tensor h = batch[0];
  for (size_t i = 0; i < layers; ++i) {
    h = at::linear(h, p.at(StrCat("layer", i, ".weight")), p.at(StrCat("layer", i, ".bias")));
    if (i + 1 < layers) h = h.tanh();
  }
  if (model.loss_kind == "mse") return (h - batch[1]).square().mean(1);
  return at::cross_entropy_loss(h, batch[1], {}, at::Reduction::None);
}

at::Tensor AttentionLosses(const Model& model, const TensorMap& p, const Batch& batch) {
  const int64_t rows = batch[0].size(0);
  const int64_t length = batch[0].size(1);
  const int64_t width = p.at("embed").size(1);
  const int64_t size = width / model.heads;
  at::Tensor x = at::embedding(p.at("embed"), batch[0]) + p.at("position");
  const auto split = [&](const char* name) {
    return at::linear(x, p.at(name)).view({rows, length, model.heads, size}).transpose(1, 2);
  };
  const at::Tensor q = split("query");
  const at::Tensor k = split("key");
  const at::Tensor v = split("value");
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores = q.matmul(k.transpose(-2, -1)).div(std::sqrt(static_cast<double>(size)));
  const at::Tensor mixed = scores.masked_fill(later, -INFINITY).softmax(-1).matmul(v);
  x = x + at::linear(mixed.transpose(1, 2).reshape({rows, length, width}), p.at("project"));
  x = at::layer_norm(x, {width}, p.at("norm_weight"), p.at("norm_bias"), 1e-5);
  const at::Tensor logits = at::linear(x, p.at("head"));
  return at::cross_entropy_loss(logits.flatten(0, 1), batch[1].flatten(), {}, at::Reduction::None)
      .view({rows, length});
}

// The model as a monitor sees it.
class GoldenSubject final : public Subject {
 public:
  GoldenSubject(const Model& model, at::ScalarType dtype) : model_(model) {
    for (const std::string& name : model.order) {
      live_.push_back({name, model.parameters.at(name).to(dtype).clone(), true});
    }
    Batch& batch = batches_.emplace_back();
    for (const at::Tensor& tensor : model.batch) {
      batch.push_back(at::isFloatingType(tensor.scalar_type()) ? tensor.to(dtype) : tensor);
    }
  }
  std::vector<NamedTensor> LiveTensors() const override { return live_; }
  absl::Status BuildReplica() override {
    for (const NamedTensor& named : live_) {
      replica_.push_back({named.name, named.tensor.clone(), true});
    }
    return absl::OkStatus();
  }
  std::vector<NamedTensor> ReplicaTensors() const override { return replica_; }
  LossValues ReplicaLosses(const Batch& batch) override {
    TensorMap parameters;
    for (const NamedTensor& named : replica_) parameters[named.name] = named.tensor;
    return model_.kind == "mlp" ? MlpLosses(model_, parameters, batch)
                                : AttentionLosses(model_, parameters, batch);
  }
  const std::vector<Batch>& probe() const override { return batches_; }
  const std::vector<Batch>& calibration() const override { return batches_; }

 private:
  const Model& model_;
  std::vector<NamedTensor> live_;
  std::vector<NamedTensor> replica_;
  std::vector<Batch> batches_;
};

// The engine on the model in one precision.
struct Engine {
  std::unique_ptr<GoldenSubject> subject;
  std::unique_ptr<internal::Replica> replica;
  std::unique_ptr<internal::ReplicaSurface> surface;

  static absl::StatusOr<Engine> Make(const Model& model, at::ScalarType dtype) {
    Engine engine;
    engine.subject = std::make_unique<GoldenSubject>(model, dtype);
    const absl::StatusOr<internal::TensorTable> table =
        internal::MakeTensorTable(engine.subject->LiveTensors());
    if (!table.ok()) return table.status();
    const std::vector<Batch>& batches = engine.subject->probe();
    auto replica = internal::Replica::Create(engine.subject.get(), *table, {&batches[0]});
    if (!replica.ok()) return replica.status();
    engine.replica = *std::move(replica);
    std::vector<int> scope;
    for (size_t i = 0; i < model.order.size(); ++i) scope.push_back(static_cast<int>(i));
    const absl::StatusOr<LossValues> losses = engine.replica->Losses(batches[0]);
    if (!losses.ok()) return losses.status();
    auto surface = internal::ReplicaSurface::Create(engine.replica.get(), scope, &batches,
                                                    internal::TotalWeight(*losses));
    if (!surface.ok()) return surface.status();
    engine.surface = *std::move(surface);
    return engine;
  }
};

struct Expected {
  at::Tensor gradient;
  at::Tensor probe;
  at::Tensor product;
  at::Tensor block_traces;
  at::Tensor hessian;
  std::map<std::string, double> numbers;
};

absl::StatusOr<Expected> ReadExpected(const GoldenFile& file) {
  Expected expected;
  const std::pair<const char*, at::Tensor*> tensors[] = {{"gradient", &expected.gradient},
                                                         {"probe", &expected.probe},
                                                         {"hessian_probe", &expected.product},
                                                         {"block_traces", &expected.block_traces},
                                                         {"hessian", &expected.hessian}};
  for (const auto& [name, to] : tensors) {
    absl::StatusOr<at::Tensor> tensor = ReadTensor(file, name);
    if (!tensor.ok()) return tensor.status();
    *to = *tensor;
  }
  for (const char* name : {"loss", "lambda_max", "lambda_min", "trace", "frobenius_squared"}) {
    const absl::StatusOr<double> number = file.Number(name);
    if (!number.ok()) return number.status();
    expected.numbers[name] = *number;
  }
  return expected;
}

double Distance(const Vector& got, const at::Tensor& expected) {
  return ((got.elements.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

double Distance(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

void Check(const char* what, double error, double tolerance, CurvatureResult* result) {
  if (error <= tolerance || !result->failure.empty()) return;
  result->failure = absl::StrFormat("%s is off by %.2e, %.0e is allowed", what, error, tolerance);
}

absl::StatusOr<Vector> Apply(HessianOperator& hessian, const at::Tensor& v) {
  ExecutionContext context;
  Vector x = hessian.space().Zero();
  x.elements.copy_(v);
  Vector hx = hessian.space().Zero();
  if (absl::Status status = hessian.Apply(x, hx, context); !status.ok()) return status;
  return hx;
}

absl::Status CheckExact(const Model& model, const Expected& expected, CurvatureResult* result) {
  absl::StatusOr<Engine> engine = Engine::Make(model, at::kDouble);
  if (!engine.ok()) return engine.status();
  ExecutionContext context;
  auto hessian =
      HessianOperator::Create(engine->surface.get(), HessianMode::kRetainedGraph, context);
  if (!hessian.ok()) return hessian.status();
  Check("the loss", Distance((*hessian)->loss(), expected.numbers.at("loss")), 1e-9, result);
  result->gradient64 = Distance((*hessian)->gradient(), expected.gradient);
  Check("the gradient", result->gradient64, 1e-9, result);
  absl::StatusOr<Vector> product = Apply(**hessian, expected.probe);
  if (!product.ok()) return product.status();
  result->product64 = Distance(*product, expected.product);
  Check("H v", result->product64, 1e-9, result);

  const internal::VectorSpace& space = (*hessian)->space();
  at::Tensor unit = at::zeros({space.dimension()}, at::kDouble);
  double trace = 0;
  for (size_t part = 0; part < space.parts().size(); ++part) {
    double block = 0;
    const internal::VectorSpace::Part& p = space.parts()[part];
    for (int64_t i = p.offset; i < p.offset + p.elements; ++i) {
      unit[i] = 1;
      absl::StatusOr<Vector> column = Apply(**hessian, unit);
      if (!column.ok()) return column.status();
      block += column->elements[i].item<double>();
      unit[i] = 0;
    }
    Check("a block's trace",
          Distance(block, expected.block_traces[static_cast<int64_t>(part)].item<double>()), 1e-9,
          result);
    trace += block;
  }
  result->trace64 = Distance(trace, expected.numbers.at("trace"));
  Check("the trace", result->trace64, 1e-9, result);
  return absl::OkStatus();
}

absl::Status CheckSingle(const Model& model, const Expected& expected, CurvatureResult* result) {
  absl::StatusOr<Engine> engine = Engine::Make(model, at::kFloat);
  if (!engine.ok()) return engine.status();
  ExecutionContext context;
  {
    auto difference =
        HessianOperator::Create(engine->surface.get(), HessianMode::kFiniteDifference, context);
    if (!difference.ok()) return difference.status();
    absl::StatusOr<Vector> product = Apply(**difference, expected.probe);
    if (!product.ok()) return product.status();
    result->finite_difference32 = Distance(*product, expected.product);
    Check("H v by finite differences", result->finite_difference32, 1e-3, result);
  }
  auto hessian =
      HessianOperator::Create(engine->surface.get(), HessianMode::kRetainedGraph, context);
  if (!hessian.ok()) return hessian.status();
  result->gradient32 = Distance((*hessian)->gradient(), expected.gradient);
  Check("the float32 gradient", result->gradient32, 1e-5, result);
  absl::StatusOr<Vector> product = Apply(**hessian, expected.probe);
  if (!product.ok()) return product.status();
  result->product32 = Distance(*product, expected.product);
  Check("the float32 H v", result->product32, 1e-4, result);

  internal::EigenpairOptions lanczos;
  lanczos.residual_ratio = 0.02;
  lanczos.max_products = 200;
  absl::StatusOr<internal::EigenpairSearch> top =
      internal::ExtremeEigenpair(**hessian, {}, lanczos, {}, context);
  if (!top.ok()) return top.status();
  lanczos.end = internal::SpectrumEnd::kBottom;
  absl::StatusOr<internal::EigenpairSearch> bottom =
      internal::ExtremeEigenpair(**hessian, {}, lanczos, {}, context);
  if (!bottom.ok()) return bottom.status();
  result->products = top->pair.products;
  result->lambda_max = Distance(top->pair.value, expected.numbers.at("lambda_max"));
  result->lambda_min = Distance(bottom->pair.value, expected.numbers.at("lambda_min"));
  Check("lambda_max", result->lambda_max, 0.01, result);
  Check("lambda_min", result->lambda_min, 0.01, result);

  internal::HutchinsonOptions hutchinson;
  hutchinson.relative_stderr = 0;
  hutchinson.max_probes = kHutchinsonProbes;
  const std::vector<double> weights(model.order.size(), 1.0);
  absl::StatusOr<HessianTrace> trace =
      internal::EstimateTrace(**hessian, weights, {}, hutchinson, context);
  if (!trace.ok()) return trace.status();
  const double diagonal = expected.hessian.diagonal().square().sum().item<double>();
  const double sigma =
      std::sqrt(2 * (expected.numbers.at("frobenius_squared") - diagonal) / kHutchinsonProbes);
  result->hutchinson_sigmas = std::abs(trace->trace - expected.numbers.at("trace")) / sigma;
  Check("the Hutchinson estimate (in standard errors)", result->hutchinson_sigmas, 4, result);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CurvatureResult> CheckCurvatureFile(const std::string& path) {
  const absl::StatusOr<GoldenFile> file = GoldenFile::Read(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<Model> model = ReadModel(*file);
  if (!model.ok()) return model.status();
  const absl::StatusOr<Expected> expected = ReadExpected(*file);
  if (!expected.ok()) return expected.status();
  CurvatureResult result;
  at::set_num_threads(1);  // threads that wait for each other are slow on a busy machine
  at::NoGradGuard no_grad;
  if (absl::Status status = CheckExact(*model, *expected, &result); !status.ok()) return status;
  if (absl::Status status = CheckSingle(*model, *expected, &result); !status.ok()) return status;
  return result;
}

}  // namespace ptqwatch::testing
