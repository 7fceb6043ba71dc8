#include "support/host_device.h"

#include <cxxabi.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "cuda/kernels/scalars.h"
#include "support/kernel_loops.h"

namespace ptqwatch::testing {
namespace {

using internal::Arithmetic;
using internal::MatrixProduct;

double Load(Arithmetic arithmetic, const void* matrix, int64_t at) {
  switch (arithmetic) {
    case Arithmetic::kFloat32:
      return static_cast<double>(static_cast<const float*>(matrix)[at]);
    case Arithmetic::kFloat64:
      return static_cast<const double*>(matrix)[at];
    case Arithmetic::kBFloat16:
      return static_cast<double>(internal::FromBFloat16(static_cast<const uint16_t*>(matrix)[at]));
    case Arithmetic::kFloat16:
      break;
  }
  return static_cast<double>(internal::FromFloat16(static_cast<const uint16_t*>(matrix)[at]));
}

// op(M) as a column-major matrix [rows, cols] of the summation type.
template <typename T>
std::vector<T> Expand(Arithmetic arithmetic, const void* matrix, int64_t offset, bool transpose,
                      int64_t ld, int64_t rows, int64_t cols) {
  std::vector<T> out(static_cast<size_t>(rows * cols));
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = offset + (transpose ? i * ld + j : j * ld + i);
      out[static_cast<size_t>(j * rows + i)] = static_cast<T>(Load(arithmetic, matrix, at));
    }
  }
  return out;
}

template <typename T>
void MultiplyOne(const MatrixProduct& p, int64_t batch) {
  const std::vector<T> a =
      Expand<T>(p.arithmetic, p.a, batch * p.stride_a, p.transpose_a, p.lda, p.m, p.k);
  const std::vector<T> b =
      Expand<T>(p.arithmetic, p.b, batch * p.stride_b, p.transpose_b, p.ldb, p.k, p.n);
  std::vector<T> column(static_cast<size_t>(p.m));
  for (int64_t j = 0; j < p.n; ++j) {
    std::fill(column.begin(), column.end(), T{0});
    for (int64_t k = 0; k < p.k; ++k) {
      const T factor = static_cast<T>(p.alpha) * b[static_cast<size_t>(j * p.k + k)];
      const T* from = a.data() + k * p.m;
      for (int64_t i = 0; i < p.m; ++i) column[static_cast<size_t>(i)] += from[i] * factor;
    }
    T* c = static_cast<T*>(p.c) + batch * p.stride_c + j * p.ldc;
    for (int64_t i = 0; i < p.m; ++i) {
      c[i] = column[static_cast<size_t>(i)] + (p.beta == 0 ? T{0} : c[i]);
    }
  }
}

// Rounds towards zero. A value that is too large becomes infinity.
float Truncate(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isinf(nearest) || std::abs(static_cast<double>(nearest)) <= std::abs(value)) {
    return nearest;
  }
  return std::nextafter(nearest, 0.0f);
}

// Emulates matrix units: the sum of sixteen products is exact; it is then added to a float32 sum
// and truncated (Fasi et al. 2021, doi 10.7717/peerj-cs.330).
void MultiplyShort(const MatrixProduct& p, int64_t batch) {
  constexpr int64_t kTogether = 16;
  const std::vector<float> a =
      Expand<float>(p.arithmetic, p.a, batch * p.stride_a, p.transpose_a, p.lda, p.m, p.k);
  const std::vector<float> b =
      Expand<float>(p.arithmetic, p.b, batch * p.stride_b, p.transpose_b, p.ldb, p.k, p.n);
  std::vector<double> sum(static_cast<size_t>(p.m));
  for (int64_t j = 0; j < p.n; ++j) {
    float* c = static_cast<float*>(p.c) + batch * p.stride_c + j * p.ldc;
    if (p.beta == 0) std::fill_n(c, p.m, 0.0f);
    for (int64_t first = 0; first < p.k; first += kTogether) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t k = first; k < std::min(p.k, first + kTogether); ++k) {
        const double factor = p.alpha * static_cast<double>(b[static_cast<size_t>(j * p.k + k)]);
        const float* from = a.data() + k * p.m;
        for (int64_t i = 0; i < p.m; ++i) {
          sum[static_cast<size_t>(i)] += static_cast<double>(from[i]) * factor;
        }
      }
      for (int64_t i = 0; i < p.m; ++i) {
        c[i] = Truncate(static_cast<double>(c[i]) + sum[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace

std::string KernelName(const std::type_info& kernel) {
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(kernel.name(), nullptr, nullptr, nullptr), &std::free);
  const std::string name = whole == nullptr ? kernel.name() : whole.get();
  const size_t scope = name.rfind("::", name.find('<'));
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::string KernelName(const internal::Kernel& kernel) {
  return std::visit([](const auto& one) { return KernelName(typeid(one)); }, kernel);
}

absl::Status SharedCopies::Merge(int thread) {
  // Most of it is unchanged: large pieces are compared first.
  return MergePiece(thread, 0, copy_.size(), 4096);
}

absl::Status SharedCopies::MergePiece(int thread, size_t begin, size_t end, size_t together) {
  for (size_t first = begin; first < end; first += together) {
    const size_t count = std::min(together, end - first);
    if (std::memcmp(&copy_[first], &begin_[first], count) == 0) continue;
    if (together > 1) {
      PTQWATCH_RETURN_IF_ERROR(MergePiece(thread, first, first + count, together / 16));
      continue;
    }
    if (writer_[first] >> 32 == phase_) {
      return absl::InternalError(internal::StrCat("threads ", writer_[first] & 0xffffffff, " and ",
                                                  thread, " both write byte ", first,
                                                  " of Shared"));
    }
    writer_[first] = phase_ << 32 | thread;
    end_[first] = copy_[first];
    copy_[first] = begin_[first];
  }
  return absl::OkStatus();
}

void SharedCopies::BeginBlock() {
  std::fill(end_.begin(), end_.end(), static_cast<char>(kUndefined));
  EndPhase();
}

void SharedCopies::EndPhase() {
  begin_ = end_;
  copy_ = end_;
  ++phase_;
}

HostMemory::HostMemory(int64_t size)
    : bytes(static_cast<size_t>(size + internal::Arena::kAlignment),
            static_cast<char>(kUndefined)) {}

void* HostMemory::aligned() {
  void* begin = bytes.data();
  size_t space = bytes.size();
  return std::align(internal::Arena::kAlignment, 1, begin, space);
}

HostDevice::HostDevice(int64_t size) : HostMemory(size), ComputeDevice(aligned(), size) {}

absl::Status HostDevice::Count() { return calls_left_-- > 0 ? absl::OkStatus() : failure_; }

absl::Status HostDevice::Run(const internal::Kernel& kernel) {
  if (absl::Status status = Count(); !status.ok()) return status;
  ++kernels_run_;
  shapes_.insert({"kernel " + std::to_string(kernel.index()), 0, 0});
  PTQWATCH_RETURN_IF_ERROR(std::visit(
      [&](const auto& one) {
        const bool backwards = order_ == ThreadOrder::kBackwards;
        if (order_ != ThreadOrder::kConcurrent) {
          if (checked_runs_[kernel.index()]++ < kCheckedRuns) return RunInTurn(one, backwards);
          RunUnchecked(one, backwards);
          return absl::OkStatus();
        }
        RunConcurrently(one, static_cast<uint32_t>(kernels_run_));
        return absl::OkStatus();
      },
      kernel));
  CountFactor(kernel);
  return absl::OkStatus();
}

absl::Status HostDevice::Multiply(const MatrixProduct& product) {
  if (absl::Status status = Count(); !status.ok()) return status;
  shapes_.insert(
      {"product " + std::to_string(static_cast<int>(product.arithmetic)), product.m, product.n});
  for (int64_t i = 0; i < product.batch; ++i) {
    if (product.arithmetic == Arithmetic::kFloat64) {
      MultiplyOne<double>(product, i);
    } else if (product.arithmetic != Arithmetic::kFloat32) {
      MultiplyShort(product, i);
    } else {
      MultiplyOne<float>(product, i);
    }
  }
  return absl::OkStatus();
}

void HostDevice::CountFactor(const internal::Kernel& kernel) {
  const auto* block = std::get_if<internal::FactorBlock>(&kernel);
  if (block == nullptr || block->first > 0) return;
  ++factors_made_;
  if (failing_factors_-- > 0) *block->info = 1;
}

absl::Status HostDevice::Zero(void* memory, int64_t count) {
  if (absl::Status status = Count(); !status.ok()) return status;
  std::memset(memory, 0, static_cast<size_t>(count));
  return absl::OkStatus();
}

absl::Status HostDevice::Upload(void* to, const void* host, int64_t count) {
  if (absl::Status status = Count(); !status.ok()) return status;
  std::copy_n(static_cast<const char*>(host), count, static_cast<char*>(to));
  return absl::OkStatus();
}

absl::Status HostDevice::Read(std::span<const internal::HostCopy> copies) {
  ++reads_;
  for (const internal::HostCopy& copy : copies) {
    std::copy_n(static_cast<const char*>(copy.from), copy.bytes, static_cast<char*>(copy.host));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::testing
