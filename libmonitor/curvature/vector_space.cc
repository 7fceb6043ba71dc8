#include "curvature/vector_space.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/status/statusor.h"
#include "cuda/device_vectors.h"

namespace ptqwatch::internal {
namespace {

constexpr int kLanes = 8;
// Elements of all new vectors that Rotate holds at a time: on the CPU few enough for the caches, on
// a device many enough to keep it busy.
constexpr int64_t kRotatedBlock = 1 << 16;
constexpr int64_t kRotatedOnDevice = 1 << 24;

template <typename T>
double DotOf(const T* x, const T* y, int64_t count) {
  // Independent partial sums let the compiler use vector registers without changing the order of
  // additions from one build to the next.
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(y[i + lane]);
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  for (double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
void FillSigns(uint64_t seed, T* x, int64_t count) {
  for (int64_t i = 0; i < count; i += 64) {
    const uint64_t word = RandomWord(seed, static_cast<uint64_t>(i / 64));
    const int64_t bits = std::min<int64_t>(64, count - i);
    for (int64_t bit = 0; bit < bits; ++bit) x[i + bit] = (word >> bit & 1) != 0 ? T{1} : T{-1};
  }
}

void ThrowUnlessOk(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

template <typename T>
std::vector<const T*> PointersTo(absl::Span<const Vector> xs) {
  std::vector<const T*> pointers;
  for (const Vector& x : xs) pointers.push_back(x.elements.const_data_ptr<T>());
  return pointers;
}

}  // namespace

VectorSpace::VectorSpace(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                         at::ScalarType dtype, at::Device device)
    : options_(at::TensorOptions().dtype(dtype).device(device)) {
  for (const auto& [name, tensor] : parameters) {
    parts_.push_back({name, tensor.sizes().vec(), tensor.numel(), dimension_});
    dimension_ += tensor.numel();
  }
  pieces_ = parts_;
}

void VectorSpace::Split(size_t part, absl::Span<const std::pair<std::string, int64_t>> pieces) {
  const auto whole = std::find_if(pieces_.begin(), pieces_.end(), [&](const Part& piece) {
    return piece.offset == parts_[part].offset && piece.elements == parts_[part].elements;
  });
  int64_t offset = parts_[part].offset;
  std::vector<Part> replacing;
  for (const auto& [name, elements] : pieces) {
    replacing.push_back({name, {elements}, elements, offset});
    offset += elements;
  }
  pieces_.insert(pieces_.erase(whole), replacing.begin(), replacing.end());
}

int64_t VectorSpace::bytes() const {
  return dimension_ * static_cast<int64_t>(options_.dtype().itemsize());
}

Vector VectorSpace::Zero() const { return {at::zeros({dimension_}, options_)}; }

Vector VectorSpace::Copy(const Vector& x) const {
  at::NoGradGuard no_grad;
  return {x.elements.clone()};
}

at::Tensor VectorSpace::View(const Vector& x, size_t part) const {
  const Part& p = parts_[part];
  return x.elements.narrow(0, p.offset, p.elements).view(p.sizes);
}

double VectorSpace::DotRange(const Vector& x, const Vector& y, int64_t begin, int64_t count) const {
  if (!x.elements.is_cpu()) {
    at::NoGradGuard no_grad;
    return x.elements.narrow(0, begin, count)
        .to(at::kDouble)
        .dot(y.elements.narrow(0, begin, count).to(at::kDouble))
        .item<double>();
  }
  if (x.elements.scalar_type() == at::kDouble) {
    return DotOf(x.elements.const_data_ptr<double>() + begin,
                 y.elements.const_data_ptr<double>() + begin, count);
  }
  return DotOf(x.elements.const_data_ptr<float>() + begin,
               y.elements.const_data_ptr<float>() + begin, count);
}

double VectorSpace::Dot(const Vector& x, const Vector& y) const {
  double sum = 0;
  for (double piece : DotByPiece(x, y)) sum += piece;
  return sum;
}

std::vector<double> VectorSpace::KernelDots(absl::Span<const Vector> xs, const Vector& y) const {
  const auto dots = [&]<typename T>(T) {
    return kernels_->Dots<T>(PointersTo<T>(xs), y.elements.const_data_ptr<T>());
  };
  absl::StatusOr<std::vector<double>> result =
      dtype() == at::kDouble ? dots(double()) : dots(float());
  ThrowUnlessOk(result.status());
  return *std::move(result);
}

std::vector<double> VectorSpace::DotByPiece(const Vector& x, const Vector& y) const {
  if (kernels_ != nullptr) return KernelDots({&x, 1}, y);
  std::vector<double> sums;
  sums.reserve(pieces_.size());
  for (const Part& piece : pieces_) sums.push_back(DotRange(x, y, piece.offset, piece.elements));
  return sums;
}

std::vector<double> VectorSpace::Dots(absl::Span<const Vector> xs, const Vector& y) const {
  std::vector<double> sums;
  if (kernels_ == nullptr) {
    for (const Vector& x : xs) sums.push_back(Dot(x, y));
    return sums;
  }
  const std::vector<double> by_piece = KernelDots(xs, y);
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto begin = by_piece.begin() + static_cast<int64_t>(i * pieces_.size());
    sums.push_back(std::accumulate(begin, begin + std::ssize(pieces_), 0.0));
  }
  return sums;
}

std::vector<double> VectorSpace::RemoveComponents(absl::Span<const Vector> basis, Vector& y) const {
  std::vector<double> components;
  if (kernels_ == nullptr) {
    for (const Vector& x : basis) {
      components.push_back(Dot(x, y));
      Axpy(-components.back(), x, y);
    }
    return components;
  }
  components = Dots(basis, y);
  std::vector<double> factors;
  for (double component : components) factors.push_back(-component);
  const auto add = [&]<typename T>(T) {
    return kernels_->Add<T>(factors, PointersTo<T>(basis), y.elements.mutable_data_ptr<T>());
  };
  ThrowUnlessOk(dtype() == at::kDouble ? add(double()) : add(float()));
  return components;
}

double VectorSpace::Distance(const Vector& x, const Vector& y) const {
  at::NoGradGuard no_grad;
  return Norm({x.elements.sub(y.elements)});
}

double VectorSpace::Norm(const Vector& x) const { return std::sqrt(Dot(x, x)); }

bool VectorSpace::IsFinite(const Vector& x) const { return std::isfinite(Dot(x, x)); }

void VectorSpace::Axpy(double a, const Vector& x, Vector& y) const {
  at::NoGradGuard no_grad;
  y.elements.add_(x.elements, a);
}

void VectorSpace::Scale(double a, Vector& x) const {
  at::NoGradGuard no_grad;
  x.elements.mul_(a);
}

void VectorSpace::Rotate(const std::vector<std::vector<double>>& weights,
                         std::vector<Vector>& basis) const {
  at::NoGradGuard no_grad;
  int64_t block = kRotatedBlock;
  if (!options_.device().is_cpu() && !weights.empty()) {
    block = std::max(block, kRotatedOnDevice / std::ssize(weights));
  }
  for (int64_t begin = 0; begin < dimension_; begin += block) {
    const int64_t count = std::min(block, dimension_ - begin);
    std::vector<at::Tensor> sums;
    for (const std::vector<double>& weight : weights) {
      at::Tensor sum = at::zeros({count}, options_);
      for (size_t i = 0; i < weight.size(); ++i) {
        sum.add_(basis[i].elements.narrow(0, begin, count), weight[i]);
      }
      sums.push_back(std::move(sum));
    }
    for (size_t k = 0; k < sums.size(); ++k) {
      basis[k].elements.narrow(0, begin, count).copy_(sums[k]);
    }
  }
  basis.resize(weights.size());
}

void VectorSpace::Multiply(const Vector& x, Vector& y) const {
  at::NoGradGuard no_grad;
  y.elements.mul_(x.elements);
}

void VectorSpace::FillRademacher(uint64_t seed, Vector& x) const {
  at::NoGradGuard no_grad;
  if (kernels_ != nullptr) {
    return ThrowUnlessOk(dtype() == at::kDouble
                             ? kernels_->FillSigns(seed, x.elements.mutable_data_ptr<double>())
                             : kernels_->FillSigns(seed, x.elements.mutable_data_ptr<float>()));
  }
  // Drawn on the host, so every device gets the same vector.
  at::Tensor host =
      x.elements.is_cpu() ? x.elements : at::empty({dimension_}, options_.device(at::kCPU));
  if (host.scalar_type() == at::kDouble) {
    FillSigns(seed, host.mutable_data_ptr<double>(), dimension_);
  } else {
    FillSigns(seed, host.mutable_data_ptr<float>(), dimension_);
  }
  if (!x.elements.is_cpu()) x.elements.copy_(host);
}

}  // namespace ptqwatch::internal
