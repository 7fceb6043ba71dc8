#include "probes/curvature_probe.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "c10/util/Exception.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/lanczos.h"
#include "curvature/replica_surface.h"
#include "probes/paired_loss.h"
#include "probes/probe_status.h"
#include "report/str_cat.h"

namespace ptqwatch::internal {
namespace {

// Lanczos vectors kept: as many as help, as long as they fit into a gigabyte.
constexpr int64_t kMostBasisVectors = 24;
constexpr int64_t kLeastBasisVectors = 3;
constexpr int64_t kBasisBytes = int64_t{1} << 30;

std::vector<int> ScopeOf(const Replica& replica, const CapturePlan& plan, CurvatureScope scope) {
  std::vector<int> entries;
  if (scope == CurvatureScope::kQuantizedWeights) {
    for (const CoveredLayer& layer : plan.layers) entries.push_back(layer.entry);
    return entries;
  }
  const std::vector<TensorEntry>& table = replica.table().entries;
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].is_parameter && at::isFloatingType(table[i].tensor.scalar_type())) {
      entries.push_back(static_cast<int>(i));
    }
  }
  return entries;
}

absl::StatusOr<double> MeanLoss(ExecutionContext& context, LossSurface& surface) {
  double loss = 0;
  for (size_t i = 0; i < surface.batches(); ++i) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    absl::StatusOr<at::Tensor> batch = surface.Loss(i, /*with_graph=*/false);
    if (!batch.ok()) return batch.status();
    loss += batch->item<double>();
  }
  if (!std::isfinite(loss)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  return loss;
}

// What `function` returns, or the status that the exception it ends with makes.
template <typename Function>
absl::Status Guarded(Function&& function) {
  try {
    return function();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("something that is no std::exception was thrown");
  }
}

// Sequences of a batch, as far as its first tensor tells.
int64_t SequencesOf(const Batch& batch) {
  return batch.empty() || !batch[0].defined() || batch[0].dim() == 0 ? 1 : batch[0].size(0);
}

// The first `rows` rows of every tensor, where all of them have `all` rows.
std::optional<Batch> FirstRows(const Batch& batch, int64_t all, int64_t rows) {
  Batch cut;
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != all) return std::nullopt;
    cut.push_back(tensor.narrow(0, 0, rows).contiguous());
  }
  return cut;
}

}  // namespace

std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences) {
  std::vector<Batch> first;
  for (const Batch& batch : batches) {
    if (sequences <= 0) break;
    const int64_t here = SequencesOf(batch);
    if (here > sequences) {
      const std::optional<Batch> cut = FirstRows(batch, here, sequences);
      // A model may want batches of one size, or have the sequences in another dimension.
      const absl::StatusOr<LossValues> losses =
          cut ? replica.Losses(*cut) : absl::UnavailableError("");
      if (losses.ok() && losses->values.dim() > 0 && losses->values.size(0) == sequences) {
        first.push_back(*cut);
        break;
      }
    }
    first.push_back(batch);
    sequences -= here;
  }
  return first;
}

absl::StatusOr<std::unique_ptr<CurvatureProbe>> CurvatureProbe::Create(
    Replica& replica, const CapturePlan& plan, std::vector<Batch> batches,
    const MonitorOptions& options) {
  std::unique_ptr<CurvatureProbe> probe(new CurvatureProbe(options.curvature));
  probe->scope_ = ScopeOf(replica, plan, options.curvature.scope);
  for (int entry : probe->scope_) {
    probe->parameters_ += replica.table().entries[static_cast<size_t>(entry)].tensor.numel();
  }
  probe->batches_ = std::move(batches);
  const auto prepare = [&]() -> absl::Status {
    for (const Batch& batch : probe->batches_) {
      absl::StatusOr<LossValues> losses = replica.Losses(batch);
      if (!losses.ok()) return losses.status();
      absl::StatusOr<UnitLosses> units = SumByUnit(*losses, batch);
      if (!units.ok()) return units.status();
      probe->total_weight_ += TotalWeight(*losses);
      probe->tokens_ += units->tokens;
    }
    if (!(probe->total_weight_ > 0)) {
      return absl::FailedPreconditionError("every token of the curvature batch is masked out");
    }
    auto surface =
        ReplicaSurface::Create(&replica, probe->scope_, &probe->batches_, probe->total_weight_);
    if (!surface.ok()) return surface.status();
    ExecutionContext context;
    context.seeds = SeedSource(options.seed);
    absl::StatusOr<HessianChoice> choice = ChooseHessianMode(
        context, surface->get(), options.curvature.mode, options.curvature.max_graph_bytes);
    if (!choice.ok()) return choice.status();
    probe->mode_ = choice->mode;
    probe->graph_bytes_ = choice->graph_bytes;
    return absl::OkStatus();
  };
  if (absl::Status status = Guarded(prepare); !status.ok()) {
    if (options.curvature.mode != HessianMode::kAuto) {
      return absl::FailedPreconditionError(
          StrCat("curvature.mode = ", ToString(options.curvature.mode), ": ",
                 std::string(status.message())));
    }
    probe->unavailable_ = std::string(status.message());
  }
  return probe;
}

absl::Status CurvatureProbe::Run(ExecutionContext& context, Replica& replica,
                                 const std::vector<std::vector<Replica::Override>>& quantized,
                                 const Vector& start, Report& report, Vector& eigenvector) {
  CurvatureReport curvature;
  curvature.scope = std::string(ToString(options_.scope));
  curvature.parameters = parameters_;
  if (!unavailable_.empty()) {
    curvature.status = ProbeStatus::kDisabled;
    curvature.status_detail = unavailable_;
    report.curvature = std::move(curvature);
    return absl::OkStatus();
  }
  const CurvatureReport nothing_measured = curvature;
  absl::Status status;
  while (true) {
    curvature.mode = std::string(ToString(mode_));
    status = Guarded([&] {
      return Measure(context, replica, quantized, start, report, curvature, eigenvector);
    });
    if (status.ok()) break;
    curvature = nothing_measured;
    curvature.mode = std::string(ToString(mode_));
    curvature.status_detail = std::string(status.message());
    eigenvector = start;
    const std::optional<HessianMode> smaller = SmallerMode(mode_);
    if (!absl::IsResourceExhausted(status) || options_.mode != HessianMode::kAuto || !smaller) {
      break;
    }
    mode_ = *smaller;
    curvature = nothing_measured;
  }
  curvature.status = ProbeStatusOf(status);
  report.curvature = std::move(curvature);
  return context.cancel.cancelled() ? absl::CancelledError("the monitor is being stopped")
                                    : absl::OkStatus();
}

absl::Status CurvatureProbe::Measure(ExecutionContext& context, Replica& replica,
                                     const std::vector<std::vector<Replica::Override>>& quantized,
                                     const Vector& start, Report& report,
                                     CurvatureReport& curvature, Vector& eigenvector) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  auto surface = ReplicaSurface::Create(&replica, scope_, &batches_, total_weight_);
  if (!surface.ok()) return surface.status();
  const VectorSpace& space = (*surface)->space();

  // Predicted with one Hessian, measured after its graph is gone: the weights may not change
  // before.
  std::vector<std::optional<double>> predicted(quantized.size());
  {
    absl::StatusOr<std::unique_ptr<HessianOperator>> hessian =
        HessianOperator::Create(context, surface->get(), mode_);
    if (!hessian.ok()) return hessian.status();
    report.cost_seconds["curvature_gradient"] = watch.Lap();
    absl::Status status =
        MeasureSpectrum(context, replica, **hessian, start, report, curvature, eigenvector);
    if (!status.ok()) return status;
    watch.Lap();
    Vector product = space.Zero();
    for (size_t i = 0; i < quantized.size(); ++i) {
      if (quantized[i].empty()) continue;
      const Vector step = (*surface)->Displacement(quantized[i]);
      status = (*hessian)->Apply(context, step, product);
      if (absl::IsDataLoss(status)) continue;  // this quantizer's alone
      if (!status.ok()) return status;
      predicted[i] = space.Dot((*hessian)->gradient(), step) + 0.5 * space.Dot(step, product);
    }
    curvature.hessian_products = (*hessian)->products();
  }

  absl::StatusOr<double> base = MeanLoss(context, **surface);
  if (!base.ok()) return base.status();
  std::vector<double> measured(quantized.size());
  for (size_t i = 0; i < quantized.size(); ++i) {
    if (!predicted[i]) continue;
    (*surface)->Replace(quantized[i]);
    absl::StatusOr<double> loss = MeanLoss(context, **surface);
    if (absl::IsDataLoss(loss.status())) {
      predicted[i].reset();
      continue;
    }
    if (!loss.ok()) return loss.status();
    measured[i] = *loss - *base;
  }
  for (size_t i = 0; i < quantized.size(); ++i) {
    if (!predicted[i]) continue;
    report.quantization[i].predicted_delta_nats = predicted[i];
    report.quantization[i].curvature_batch_delta_nats = measured[i];
  }
  report.cost_seconds["curvature_prediction"] = watch.Lap();
  return absl::OkStatus();
}

absl::Status CurvatureProbe::MeasureSpectrum(ExecutionContext& context, Replica& replica,
                                             HessianOperator& hessian, const Vector& start,
                                             Report& report, CurvatureReport& curvature,
                                             Vector& eigenvector) {
  const VectorSpace& space = hessian.space();
  Stopwatch watch(context.clock);
  curvature.loss_nats = hessian.loss();
  curvature.batch_tokens = tokens_;
  curvature.gradient_norm = space.Norm(hessian.gradient());

  if (mode_ == HessianMode::kFiniteDifference) {
    Vector z = space.Zero();
    Vector hz = space.Zero();
    space.FillRademacher(context.seeds.Seed("hutchinson", 0), z);
    if (absl::Status status = hessian.Apply(context, z, hz); !status.ok()) return status;
    absl::StatusOr<double> check = hessian.StepCheck(context, z, hz);
    if (!check.ok()) return check.status();
    if (*check > kLargestStepCheck) {
      return absl::FailedPreconditionError(
          absl::StrFormat("a product with the Hessian changes by %.2g of itself when the step of "
                          "the finite difference is halved: the loss is too rough for it",
                          *check));
    }
    curvature.step_check_ratio = *check;
  }

  LanczosOptions lanczos;
  lanczos.residual_ratio = options_.eigenvalue_residual_ratio;
  lanczos.max_products = options_.max_eigenvalue_products;
  lanczos.max_basis = static_cast<int>(
      std::clamp(kBasisBytes / space.bytes(), kLeastBasisVectors, kMostBasisVectors));
  absl::StatusOr<Eigenpair> top = ExtremeEigenpair(context, hessian, start, lanczos);
  if (!top.ok()) return top.status();
  curvature.top_eigenvalue = top->value;
  curvature.top_eigenvalue_residual_ratio = top->residual_ratio;
  eigenvector = top->vector;
  report.cost_seconds["curvature_eigenvalue"] = watch.Lap();

  std::vector<double> mean_squares;
  for (int entry : scope_) {
    const at::Tensor weight = replica.loaded(entry).to(at::kDouble);
    mean_squares.push_back(weight.numel() == 0 ? 0 : weight.square().mean().item<double>());
  }
  HutchinsonOptions hutchinson;
  hutchinson.relative_stderr = options_.trace_relative_stderr;
  hutchinson.max_probes = options_.max_trace_probes;
  absl::StatusOr<TraceEstimate> trace = EstimateTrace(context, hessian, mean_squares, hutchinson);
  if (!trace.ok()) return trace.status();
  curvature.trace = trace->trace.value;
  curvature.trace_stderr = trace->trace.stderr_value;
  curvature.trace_probes = trace->probes;
  curvature.weighted_trace = trace->weighted.value;
  curvature.weighted_trace_stderr = trace->weighted.stderr_value;
  for (size_t i = 0; i < space.parts().size(); ++i) {
    LayerCurvature& layer = curvature.layers.emplace_back();
    layer.name = space.parts()[i].name;
    layer.parameters = space.parts()[i].elements;
    layer.trace = trace->by_part[i].value;
    layer.trace_stderr = trace->by_part[i].stderr_value;
    layer.weight_mean_square = mean_squares[i];
  }
  report.cost_seconds["curvature_trace"] = watch.Lap();
  return absl::OkStatus();
}

std::string CurvatureProbe::Describe() const {
  if (!unavailable_.empty()) return StrCat("curvature: off, ", unavailable_, "\n");
  std::string graphs;
  if (graph_bytes_) {
    graphs =
        absl::StrFormat(", gradient graphs of %.1f MB", 1e-6 * static_cast<double>(*graph_bytes_));
  }
  return absl::StrFormat("curvature: %s, %d parameters (%s), %d tokens in %d batches%s\n",
                         std::string(ToString(mode_)), parameters_,
                         std::string(ToString(options_.scope)), tokens_, batches_.size(), graphs);
}

}  // namespace ptqwatch::internal
