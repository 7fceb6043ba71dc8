#include "ptqwatch/offline/loss_curvature.h"

#include <exception>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/strings.h"
#include "c10/util/Exception.h"
#include "curvature/differentiate.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/loss_direction.h"
#include "curvature/spectrum.h"
#include "probes/curvature_setup.h"
#include "ptqwatch/subject.h"
#include "session/model_session.h"
#include "snapshot/generator_guard.h"

namespace ptqwatch {
namespace {

using internal::HessianOperator;
using internal::StrCat;
using internal::Vector;

// What `function` returns, with what it throws as a status.
template <typename Function>
auto Guarded(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const c10::Error& error) {
    const std::string message = StrCat("LibTorch: ", error.what_without_backtrace());
    return internal::IsOutOfMemory(error) ? absl::ResourceExhaustedError(message)
                                          : absl::InternalError(message);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("something that is no std::exception was thrown");
  }
}

HessianEigenpair Told(const internal::Eigenpair& pair) {
  return {pair.value, pair.residual_ratio,         pair.converged, pair.products, pair.method,
          pair.start, pair.vector.elements.clone()};
}

}  // namespace

class LossCurvature::Impl {
 public:
  Impl(Subject& subject, const CurvatureOptions& options) : subject_(subject), options_(options) {}

  absl::Status Build(const ExecutionContext& context) {
    if (absl::Status status = Validate(options_); !status.ok()) return status;
    at::NoGradGuard no_grad;
    internal::ModelSessionOptions needed = {
        .curvature = internal::CurvatureBatchesRequest{.micro_batch = options_.micro_batch}};
    if (options_.scope == CurvatureScope::kQuantizedWeights) {
      // Only to know which weights are quantized: the size of the Gram matrices does not matter.
      needed.capture =
          internal::CaptureRequest{.max_gram_bytes = std::numeric_limits<int64_t>::max()};
    }
    absl::StatusOr<std::unique_ptr<internal::ModelSession>> session =
        internal::ModelSession::Open(subject_, needed);
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    setup_.batches = session_->curvature();
    absl::StatusOr<std::vector<int>> scope =
        internal::ScopeEntries(replica(), session_->live(), session_->plan(), options_);
    if (!scope.ok()) return scope.status();
    setup_.scope = *std::move(scope);
    session_->ReleaseLiveTensors();
    if (absl::Status status = Reload(); !status.ok()) return status;
    internal::GeneratorGuard generators;
    if (absl::Status status = setup_.Prepare(replica(), options_, context); !status.ok()) {
      return status;
    }
    if (generators.Moved()) {
      return absl::FailedPreconditionError(
          "losses draws random numbers from a default generator when gradients are on");
    }
    auto surface = setup_.MakeSurface(replica());
    if (!surface.ok()) return surface.status();
    for (const internal::VectorSpace::Part& part : (*surface)->space().parts()) {
      parameters_.push_back({part.name, part.sizes, part.offset, part.elements});
    }
    return absl::OkStatus();
  }

  absl::Status Reload() {
    hessian_.reset();
    surface_.reset();
    krylov_ = {};
    return session_->Reload();
  }

  // Built when it is first needed, and again after the weights were moved.
  absl::StatusOr<HessianOperator*> Hessian(const ExecutionContext& context) {
    if (surface_ == nullptr) {
      auto surface = setup_.MakeSurface(replica());
      if (!surface.ok()) return surface.status();
      surface_ = *std::move(surface);
    }
    if (hessian_ == nullptr) {
      auto hessian = HessianOperator::Create(surface_.get(), setup_.mode, context);
      if (!hessian.ok()) return hessian.status();
      hessian_ = *std::move(hessian);
    }
    return hessian_.get();
  }

  // A vector of the space, of its dtype and device.
  absl::StatusOr<Vector> Take(const HessianOperator& hessian, const at::Tensor& given) const {
    if (!given.defined() || given.dim() != 1 || given.numel() != hessian.space().dimension()) {
      return absl::InvalidArgumentError(StrCat(
          "a vector of shape ", given.defined() ? internal::ShapeText(given) : std::string("none"),
          ", expected [", hessian.space().dimension(), "]"));
    }
    return Vector{given.detach().reshape({-1}).to(hessian.gradient().elements.options()).clone()};
  }

  absl::StatusOr<HessianSpectrum> Spectrum(const ExecutionContext& context) {
    absl::StatusOr<HessianOperator*> hessian = Hessian(context);
    if (!hessian.ok()) return hessian.status();
    internal::SpectrumOptions search = internal::SpectrumOptionsFrom(options_, (*hessian)->space());
    absl::StatusOr<internal::Spectrum> found = internal::FindSpectrum(
        **hessian, internal::WithGradient((*hessian)->space(), vectors_, (*hessian)->gradient()),
        search, vectors_, context);
    if (!found.ok()) return found.status();
    HessianSpectrum spectrum;
    for (const internal::Eigenpair& pair : found->top) spectrum.top.push_back(Told(pair));
    for (const internal::Eigenpair& pair : found->bottom) spectrum.bottom.push_back(Told(pair));
    spectrum.products = found->products;
    spectrum.seconds = found->seconds;
    krylov_ = std::move(found->krylov);
    return spectrum;
  }

  absl::StatusOr<HessianTrace> Trace(const ExecutionContext& context) {
    absl::StatusOr<HessianOperator*> hessian = Hessian(context);
    if (!hessian.ok()) return hessian.status();
    const auto found = internal::EstimateTrace(**hessian, setup_.MeanSquares(replica()), krylov_,
                                               internal::HutchinsonOptionsFrom(options_), context);
    if (!found.ok()) return found.status();
    HessianTrace trace;
    trace.trace = found->trace.value;
    trace.trace_stderr = found->trace.stderr_value;
    trace.trace_interval = found->trace.interval;
    trace.weighted_trace = found->weighted.value;
    trace.weighted_trace_stderr = found->weighted.stderr_value;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const internal::Estimate& part = found->by_part[i];
      trace.parameters.push_back({parameters_[i].name, part.value, part.stderr_value});
    }
    for (const auto& [name, layer] : found->by_layer) {
      trace.layers.push_back({name, layer.value, layer.stderr_value});
    }
    trace.probes = trace.products = found->probes;
    trace.converged = found->converged;
    trace.seconds = found->seconds;
    return trace;
  }

  absl::StatusOr<HessianDirection> Along(const at::Tensor& given, const ExecutionContext& context) {
    absl::StatusOr<HessianOperator*> hessian = Hessian(context);
    if (!hessian.ok()) return hessian.status();
    absl::StatusOr<Vector> d = Take(**hessian, given);
    if (!d.ok()) return d.status();
    const auto found = internal::MeasureDirection(**hessian, *d, {}, context);
    if (!found.ok()) return found.status();
    return HessianDirection{found->gradient_term, found->curvature_term,
                            2 * found->curvature_term / found->squared_norm,
                            found->gradient_by_part, found->curvature_by_part};
  }

  absl::StatusOr<std::vector<double>> LossesAlong(const at::Tensor& given,
                                                  const std::vector<double>& scales,
                                                  const ExecutionContext& context) {
    absl::StatusOr<HessianOperator*> hessian = Hessian(context);
    if (!hessian.ok()) return hessian.status();
    absl::StatusOr<Vector> d = Take(**hessian, given);
    if (!d.ok()) return d.status();
    hessian_.reset();
    return internal::LossesAlong(*surface_, *d, scales, context);
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  HessianMode mode() const { return setup_.mode; }

 private:
  internal::Replica& replica() { return session_->replica(); }

  Subject& subject_;
  const CurvatureOptions options_;
  std::unique_ptr<internal::ModelSession> session_;
  internal::CurvatureSetup setup_;
  std::vector<Parameter> parameters_;
  internal::VectorMap vectors_;
  internal::KrylovSpace krylov_;
  std::unique_ptr<internal::ReplicaSurface> surface_;
  std::unique_ptr<HessianOperator> hessian_;
};

LossCurvature::LossCurvature(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LossCurvature::~LossCurvature() = default;

absl::StatusOr<std::unique_ptr<LossCurvature>> LossCurvature::Create(
    Subject& subject, const CurvatureOptions& options, const ExecutionContext& context) {
  auto impl = std::make_unique<Impl>(subject, options);
  if (absl::Status status = Guarded([&] { return impl->Build(context); }); !status.ok()) {
    return status;
  }
  return std::unique_ptr<LossCurvature>(new LossCurvature(std::move(impl)));
}

absl::Status LossCurvature::Reload() {
  return Guarded([&] { return impl_->Reload(); });
}

const std::vector<LossCurvature::Parameter>& LossCurvature::parameters() const {
  return impl_->parameters();
}

int64_t LossCurvature::dimension() const {
  return impl_->parameters().empty()
             ? 0
             : impl_->parameters().back().offset + impl_->parameters().back().elements;
}

HessianMode LossCurvature::mode() const { return impl_->mode(); }

absl::StatusOr<double> LossCurvature::Loss(const ExecutionContext& context) {
  return Guarded([&]() -> absl::StatusOr<double> {
    absl::StatusOr<HessianOperator*> hessian = impl_->Hessian(context);
    if (!hessian.ok()) return hessian.status();
    return (*hessian)->loss();
  });
}

absl::StatusOr<at::Tensor> LossCurvature::Gradient(const ExecutionContext& context) {
  return Guarded([&]() -> absl::StatusOr<at::Tensor> {
    absl::StatusOr<HessianOperator*> hessian = impl_->Hessian(context);
    if (!hessian.ok()) return hessian.status();
    return (*hessian)->gradient().elements.clone();
  });
}

absl::StatusOr<at::Tensor> LossCurvature::Multiply(const at::Tensor& v,
                                                   const ExecutionContext& context) {
  return Guarded([&]() -> absl::StatusOr<at::Tensor> {
    absl::StatusOr<HessianOperator*> hessian = impl_->Hessian(context);
    if (!hessian.ok()) return hessian.status();
    absl::StatusOr<Vector> vector = impl_->Take(**hessian, v);
    if (!vector.ok()) return vector.status();
    Vector product = (*hessian)->space().Zero();
    if (absl::Status status = (*hessian)->Apply(*vector, product, context); !status.ok()) {
      return status;
    }
    return product.elements;
  });
}

absl::StatusOr<HessianSpectrum> LossCurvature::Spectrum(const ExecutionContext& context) {
  return Guarded([&] { return impl_->Spectrum(context); });
}

absl::StatusOr<HessianTrace> LossCurvature::Trace(const ExecutionContext& context) {
  return Guarded([&] { return impl_->Trace(context); });
}

absl::StatusOr<HessianDirection> LossCurvature::Along(const at::Tensor& direction,
                                                      const ExecutionContext& context) {
  return Guarded([&] { return impl_->Along(direction, context); });
}

absl::StatusOr<std::vector<double>> LossCurvature::LossesAlong(const at::Tensor& direction,
                                                               const std::vector<double>& scales,
                                                               const ExecutionContext& context) {
  return Guarded([&] { return impl_->LossesAlong(direction, scales, context); });
}

}  // namespace ptqwatch
