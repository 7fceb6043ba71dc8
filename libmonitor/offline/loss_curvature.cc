#include "ptqwatch/offline/loss_curvature.h"

#include <limits>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/critical_sharpness.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/loss_direction.h"
#include "curvature/spectrum.h"
#include "ptqwatch/subject.h"
#include "session/curvature_setup.h"
#include "session/model_session.h"

namespace ptqwatch {

using internal::Guard;
using internal::HessianOperator;
using internal::Vector;

class LossCurvature::Impl {
 public:
  Impl(const CurvatureOptions& options, const CurvatureEngineOptions& engine)
      : options_(options), engine_(engine) {}

  absl::Status Build(Subject& subject, const ExecutionContext& context) {
    PTQWATCH_RETURN_IF_ERROR(Validate(options_));
    PTQWATCH_RETURN_IF_ERROR(Validate(engine_));
    at::NoGradGuard no_grad;
    internal::ModelSessionOptions needed = {
        .curvature = internal::CurvatureBatchesRequest{.micro_batch = engine_.micro_batch},
        .bytes = context.bytes};
    if (options_.scope == CurvatureScope::kQuantizedWeights) {
      // The plan only names the quantized weights: the size of Gram matrices does not matter.
      needed.capture =
          internal::CaptureRequest{.max_gram_bytes = std::numeric_limits<int64_t>::max()};
    }
    PTQWATCH_ASSIGN_OR_RETURN(session_, internal::ModelSession::Open(subject, needed));
    PTQWATCH_ASSIGN_OR_RETURN(internal::CurvatureTarget target,
                              internal::MakeCurvatureTarget(*session_, options_));
    session_->ReleaseLiveTensors();
    PTQWATCH_ASSIGN_OR_RETURN(
        const internal::CurvatureSetup trial,
        internal::PrepareCurvature(replica(), std::move(target), engine_, context));
    PTQWATCH_ASSIGN_OR_RETURN(
        setup_, internal::OnBatches(replica(), trial, session_->curvature(), engine_, context));
    const internal::VectorSpace space = internal::SpaceOf(replica(), setup_.target.scope);
    for (const internal::VectorSpace::Part& part : space.pieces()) {
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

  absl::Status OpenSurface() {
    if (surface_ != nullptr) return absl::OkStatus();
    PTQWATCH_ASSIGN_OR_RETURN(surface_, setup_.MakeSurface(replica()));
    return absl::OkStatus();
  }

  // Built on first use, and again after the weights were moved.
  absl::StatusOr<HessianOperator*> Hessian(const ExecutionContext& context) {
    PTQWATCH_RETURN_IF_ERROR(OpenSurface());
    if (hessian_ == nullptr) {
      PTQWATCH_ASSIGN_OR_RETURN(
          auto hessian,
          HessianOperator::Create(surface_.get(), setup_.mode, context, setup_.rough_differences));
      PTQWATCH_RETURN_IF_ERROR(
          internal::CheckDifference(*hessian, setup_.mode_detail, context).status());
      hessian_ = std::move(hessian);
    }
    return hessian_.get();
  }

  absl::StatusOr<at::Tensor> Multiply(const at::Tensor& v, const ExecutionContext& context) {
    PTQWATCH_ASSIGN_OR_RETURN(HessianOperator* const hessian, Hessian(context));
    PTQWATCH_ASSIGN_OR_RETURN(const Vector vector, CopyOf(v, hessian->space()));
    Vector product = hessian->space().Zero();
    PTQWATCH_RETURN_IF_ERROR(hessian->Apply(vector, product, context));
    return product.elements;
  }

  absl::StatusOr<HessianSpectrum> Spectrum(const ExecutionContext& context) {
    PTQWATCH_ASSIGN_OR_RETURN(HessianOperator* const hessian, Hessian(context));
    const internal::VectorSpace& space = hessian->space();
    PTQWATCH_ASSIGN_OR_RETURN(
        internal::SpectrumSearch found,
        internal::FindSpectrum(*hessian, internal::WithGradient(vectors_, hessian->gradient()),
                               internal::SpectrumOptionsFrom(options_, engine_, space), context));
    vectors_ = std::move(found.next);
    krylov_ = std::move(found.krylov);
    // The caller may write to its vectors, while ours start the next search.
    for (HessianEigenpair& pair : found.spectrum.top) pair.vector = pair.vector.clone();
    for (HessianEigenpair& pair : found.spectrum.bottom) pair.vector = pair.vector.clone();
    return std::move(found.spectrum);
  }

  absl::StatusOr<HessianTrace> Trace(const ExecutionContext& context) {
    PTQWATCH_ASSIGN_OR_RETURN(HessianOperator* const hessian, Hessian(context));
    return internal::EstimateTrace(*hessian, setup_.MeanSquares(replica()), krylov_,
                                   internal::HutchinsonOptionsFrom(options_, engine_), context);
  }

  absl::StatusOr<HessianDirection> Along(const at::Tensor& direction,
                                         const ExecutionContext& context) {
    PTQWATCH_ASSIGN_OR_RETURN(HessianOperator* const hessian, Hessian(context));
    PTQWATCH_ASSIGN_OR_RETURN(const Vector d, CopyOf(direction, hessian->space()));
    return internal::MeasureDirection(*hessian, d, context);
  }

  absl::StatusOr<std::vector<double>> LossesAlong(const at::Tensor& direction,
                                                  const std::vector<double>& scales,
                                                  const ExecutionContext& context) {
    PTQWATCH_ASSIGN_OR_RETURN(const HessianOperator* const hessian, Hessian(context));
    PTQWATCH_ASSIGN_OR_RETURN(const Vector d, CopyOf(direction, hessian->space()));
    hessian_.reset();
    return internal::LossesAlong(*surface_, d, scales, context);
  }

  absl::StatusOr<CriticalSharpness> CriticalAlong(const at::Tensor& direction,
                                                  const ExecutionContext& context) {
    PTQWATCH_RETURN_IF_ERROR(OpenSurface());
    PTQWATCH_ASSIGN_OR_RETURN(const Vector d, CopyOf(direction, surface_->space()));
    hessian_.reset();
    return internal::FindCriticalSharpness(*surface_, d, context);
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  HessianMode mode() const { return setup_.mode; }
  const std::string& mode_detail() const { return setup_.mode_detail; }

 private:
  internal::Replica& replica() { return session_->replica(); }

  // A copy of a vector with the dtype and device of the space.
  static absl::StatusOr<Vector> CopyOf(const at::Tensor& given,
                                       const internal::VectorSpace& space) {
    if (!given.defined() || given.dim() != 1 || given.numel() != space.dimension()) {
      return absl::InvalidArgumentError(internal::StrCat(
          "a vector of shape ", given.defined() ? internal::ShapeText(given) : std::string("none"),
          ", expected [", space.dimension(), "]"));
    }
    Vector copy = space.Zero();
    copy.elements.copy_(given.detach());
    return copy;
  }

  const CurvatureOptions options_;
  const CurvatureEngineOptions engine_;
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
    Subject& subject, const CurvatureOptions& options, const CurvatureEngineOptions& engine,
    const ExecutionContext& context) {
  auto impl = std::make_unique<Impl>(options, engine);
  PTQWATCH_RETURN_IF_ERROR(Guard([&] { return impl->Build(subject, context); }));
  return std::unique_ptr<LossCurvature>(new LossCurvature(std::move(impl)));
}

absl::Status LossCurvature::Reload() {
  return Guard([&] { return impl_->Reload(); });
}

const std::vector<LossCurvature::Parameter>& LossCurvature::parameters() const {
  return impl_->parameters();
}

int64_t LossCurvature::dimension() const {
  return parameters().empty() ? 0 : parameters().back().offset + parameters().back().elements;
}

HessianMode LossCurvature::mode() const { return impl_->mode(); }

const std::string& LossCurvature::mode_detail() const { return impl_->mode_detail(); }

absl::StatusOr<double> LossCurvature::Loss(const ExecutionContext& context) {
  return Guard([&]() -> absl::StatusOr<double> {
    PTQWATCH_ASSIGN_OR_RETURN(const HessianOperator* const hessian, impl_->Hessian(context));
    return hessian->loss();
  });
}

absl::StatusOr<at::Tensor> LossCurvature::Gradient(const ExecutionContext& context) {
  return Guard([&]() -> absl::StatusOr<at::Tensor> {
    PTQWATCH_ASSIGN_OR_RETURN(const HessianOperator* const hessian, impl_->Hessian(context));
    return hessian->gradient().elements.clone();
  });
}

absl::StatusOr<at::Tensor> LossCurvature::Multiply(const at::Tensor& v,
                                                   const ExecutionContext& context) {
  return Guard([&] { return impl_->Multiply(v, context); });
}

absl::StatusOr<HessianSpectrum> LossCurvature::Spectrum(const ExecutionContext& context) {
  return Guard([&] { return impl_->Spectrum(context); });
}

absl::StatusOr<HessianTrace> LossCurvature::Trace(const ExecutionContext& context) {
  return Guard([&] { return impl_->Trace(context); });
}

absl::StatusOr<HessianDirection> LossCurvature::Along(const at::Tensor& direction,
                                                      const ExecutionContext& context) {
  return Guard([&] { return impl_->Along(direction, context); });
}

absl::StatusOr<std::vector<double>> LossCurvature::LossesAlong(const at::Tensor& direction,
                                                               const std::vector<double>& scales,
                                                               const ExecutionContext& context) {
  return Guard([&] { return impl_->LossesAlong(direction, scales, context); });
}

absl::StatusOr<CriticalSharpness> LossCurvature::CriticalAlong(const at::Tensor& direction,
                                                               const ExecutionContext& context) {
  return Guard([&] { return impl_->CriticalAlong(direction, context); });
}

}  // namespace ptqwatch
