#include "curvature/edge_of_stability.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/linalg_cholesky_ex.h"
#include "ATen/ops/linalg_eigh.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/preconditioned_operator.h"

namespace ptqwatch::internal {
namespace {

// The ratio of step to rate for a gradient of constant size with alternating sign.
double Gain(const OptimizerView& optimizer) {
  if (optimizer.kind != OptimizerKind::kSgd) return (1 - optimizer.beta1) / (1 + optimizer.beta1);
  const double momentum = optimizer.momentum;
  if (momentum == 0) return 1;
  const double through_momentum = (1 - optimizer.dampening) / (1 + momentum);
  return optimizer.nesterov ? 1 + momentum * through_momentum : through_momentum;
}

// One parameter's S and D in M = S (H + D) S, without the second moment: S^2 is `square` for SGD
// and square / p for Adam.
struct PartScaling {
  double square = 0;
  double decay = 0;  // D
  friend bool operator==(const PartScaling&, const PartScaling&) = default;
};

absl::StatusOr<PartScaling> ScalingOf(const OptimizerView& optimizer,
                                      const OptimizedParameter& parameter) {
  const double rate = parameter.learning_rate;
  const double decay = parameter.weight_decay;
  const auto bad = [&](std::string_view what, double value) {
    return absl::FailedPreconditionError(
        StrCat("the ", what, " of '", parameter.name, "' is ", value));
  };
  if (!std::isfinite(rate) || rate < 0) return bad("learning rate", rate);
  if (!std::isfinite(decay) || decay < 0) return bad("weight decay", decay);
  if (rate == 0) return PartScaling{};
  double square = Gain(optimizer) * rate / 2;
  if (optimizer.kind == OptimizerKind::kSgd) return PartScaling{square, decay};
  if (parameter.steps < 1 || !parameter.second_moment.defined()) {
    return absl::FailedPreconditionError(
        StrCat("'", parameter.name, "' has no second moment: it has not been updated yet"));
  }
  square /= 1 - std::pow(optimizer.beta1, static_cast<double>(parameter.steps));
  if (optimizer.kind == OptimizerKind::kAdam) return PartScaling{square, decay};
  const double left = 1 - rate * decay / 2;
  if (left <= 0) {
    return bad("learning rate times the weight decay, which alone is past the edge,", rate * decay);
  }
  return PartScaling{square / left, 0};
}

// Divides `squares`, one part of S^2, by the root of the second moment.
absl::Status Precondition(const OptimizerView& optimizer, const OptimizedParameter& parameter,
                          const at::Tensor& squares) {
  const at::Tensor moment = parameter.second_moment.to(squares.options()).reshape(squares.sizes());
  if (moment.numel() == 0) return absl::OkStatus();
  // The negation also catches NaN.
  if (!(moment.min().item<double>() >= 0 && std::isfinite(moment.max().item<double>()))) {
    return absl::FailedPreconditionError(
        StrCat("the second moment of '", parameter.name, "' is negative or not finite"));
  }
  const double correction = 1 - std::pow(optimizer.beta2, static_cast<double>(parameter.steps));
  squares.div_(moment.div(correction).sqrt_().add_(optimizer.epsilon));
  if (!std::isfinite(squares.max().item<double>())) {
    return absl::FailedPreconditionError(StrCat("the second moment of '", parameter.name,
                                                "' is 0 somewhere, and the optimizer's epsilon is ",
                                                optimizer.epsilon));
  }
  return absl::OkStatus();
}

struct Scaling {
  std::optional<PartScaling> uniform;  // set if S and D are multiples of the identity
  Vector scale;                        // S; set if not uniform
  Vector shift;                        // S D S; undefined if D is 0
};

absl::StatusOr<Scaling> MakeScaling(const VectorSpace& space, const OptimizerView& optimizer) {
  std::map<std::string_view, const OptimizedParameter*> by_name;
  std::map<std::string_view, int> listed;
  for (const OptimizedParameter& parameter : optimizer.parameters) {
    by_name[parameter.name] = &parameter;
    ++listed[parameter.name];
  }
  std::vector<PartScaling> parts;
  bool moves = false;
  bool decays = false;
  bool alike = optimizer.kind == OptimizerKind::kSgd;
  for (const VectorSpace::Part& part : space.parts()) {
    const auto found = by_name.find(part.name);
    PartScaling& scaling = parts.emplace_back();
    if (found != by_name.end()) {
      if (listed[part.name] > 1) {
        return absl::FailedPreconditionError(StrCat("the optimizer lists '", part.name, "' ",
                                                    listed[part.name],
                                                    " times: each step updates it as often"));
      }
      PTQWATCH_ASSIGN_OR_RETURN(scaling, ScalingOf(optimizer, *found->second));
    }
    moves = moves || scaling.square > 0;
    decays = decays || scaling.decay > 0;
    alike = alike && scaling == parts.front();
  }
  if (!moves) {
    return absl::FailedPreconditionError(
        "no parameter in the Hessian's scope has a learning rate above 0");
  }
  if (alike) return Scaling{parts.front(), {}, {}};

  at::NoGradGuard no_grad;
  Scaling result{std::nullopt, space.Zero(), {}};
  if (decays) result.shift = space.Zero();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].square == 0) continue;
    const at::Tensor squares = space.View(result.scale, i);
    squares.fill_(parts[i].square);
    if (optimizer.kind != OptimizerKind::kSgd) {
      PTQWATCH_RETURN_IF_ERROR(
          Precondition(optimizer, *by_name.at(space.parts()[i].name), squares));
    }
    if (parts[i].decay > 0) {
      space.View(result.shift, i).copy_(squares).mul_(parts[i].decay);
    }
    squares.sqrt_();
  }
  return result;
}

// The top eigenvector of S Q M Q' S, with Q and M from `known`: S Q c, where M G c = mu c with the
// Gram matrix G = Q' S^2 Q. With G = L L', the vectors y = L' c are eigenvectors of L' M L, and c =
// M L y / mu. Undefined if `known` is empty or mu is not positive.
Vector KnownTop(const VectorSpace& space, const KrylovSpace& known, const Vector& scale) {
  at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(known.basis.size());
  if (size == 0) return {};
  at::Tensor gram = at::empty({size, size}, at::kDouble);
  at::Tensor matrix = at::empty({size, size}, at::kDouble);
  Vector scaled = space.Zero();
  for (int64_t i = 0; i < size; ++i) {
    scaled.elements.copy_(known.basis[static_cast<size_t>(i)].elements);
    space.Multiply(scale, scaled);
    space.Multiply(scale, scaled);
    for (int64_t j = 0; j < size; ++j) {
      const auto at = static_cast<size_t>(i * size + j);
      matrix.mutable_data_ptr<double>()[at] = known.matrix[at];
      if (j > i) continue;
      const double dot = space.Dot(known.basis[static_cast<size_t>(j)], scaled);
      gram.mutable_data_ptr<double>()[i * size + j] = dot;
      gram.mutable_data_ptr<double>()[j * size + i] = dot;
    }
  }
  const auto [factor, failed] = at::linalg_cholesky_ex(gram);
  if (failed.item<int>() != 0) return {};
  const auto [values, vectors] = at::linalg_eigh(factor.t().matmul(matrix).matmul(factor));
  if (!(values[size - 1].item<double>() > 0)) return {};
  const at::Tensor weights = matrix.matmul(factor).mv(vectors.select(1, size - 1)).contiguous();
  scaled.elements.zero_();
  for (int64_t i = 0; i < size; ++i) {
    space.Axpy(weights.const_data_ptr<double>()[i], known.basis[static_cast<size_t>(i)], scaled);
  }
  space.Multiply(scale, scaled);
  return scaled;
}

// Returns `start` with `known` added to its secondary vector.
WarmStart Join(const VectorSpace& space, const WarmStart& start, Vector known) {
  const double norm = known.defined() ? space.Norm(known) : 0;
  if (!(norm > 0 && std::isfinite(norm))) return start;
  space.Scale(1 / norm, known);
  const Vector& other = start.secondary;
  if (other.defined() && other.elements.numel() == space.dimension() && space.IsFinite(other)) {
    // With this sign the two vectors do not cancel.
    const double sign = space.Dot(other, known) < 0 ? -1 : 1;
    space.Axpy(sign, other, known);
  }
  return {start.vector, std::move(known)};
}

}  // namespace

absl::StatusOr<EdgeOfStability> MeasureEdgeOfStability(SymmetricOperator& hessian,
                                                       const OptimizerView& optimizer,
                                                       const HessianEigenpair& top,
                                                       KrylovSpace known, const WarmStart& start,
                                                       const EigenpairOptions& options,
                                                       const ExecutionContext& context) {
  if (!optimizer.unavailable.empty()) {
    return absl::FailedPreconditionError(optimizer.unavailable);
  }
  if (optimizer.kind == OptimizerKind::kMuon) {
    return absl::FailedPreconditionError("there is no formula for muon");
  }
  PTQWATCH_ASSIGN_OR_RETURN(Scaling scaling, MakeScaling(hessian.space(), optimizer));
  EdgeOfStability edge;
  if (scaling.uniform) {
    const double curvature = top.value + scaling.uniform->decay;
    const double residual = top.residual_ratio * std::abs(top.value);
    edge.ratio = scaling.uniform->square * curvature;
    edge.residual_ratio = residual == 0 ? 0 : residual / std::abs(curvature);
    return edge;
  }
  const VectorSpace& space = hessian.space();
  const WarmStart joined = Join(space, start, KnownTop(space, known, scaling.scale));
  known = {};  // makes room for the search
  PreconditionedOperator preconditioned(&hessian, std::move(scaling.scale),
                                        std::move(scaling.shift));
  PTQWATCH_ASSIGN_OR_RETURN(EigenpairSearch search,
                            ExtremeEigenpair(preconditioned, joined, options, {}, context));
  edge.ratio = search.pair.value;
  edge.residual_ratio = search.pair.residual_ratio;
  edge.products = search.pair.products;
  edge.next = std::move(search.next);
  return edge;
}

}  // namespace ptqwatch::internal
