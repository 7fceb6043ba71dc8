#include "cuda/device_vectors.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// A block of threads adds up this many elements, or more if there would be too many sums.
constexpr int64_t kLeastVectorPart = 1 << 16;
constexpr int64_t kMostVectorParts = 4096;

template <typename T>
PerLayer<const T> Pointers(std::span<const T* const> xs) {
  PerLayer<const T> pointers;
  std::copy(xs.begin(), xs.end(), pointers.at);
  return pointers;
}

int64_t SumBytes(size_t parts) { return static_cast<int64_t>(sizeof(double) * parts) * kMaxBatch; }

}  // namespace

DeviceVectors::Cut DeviceVectors::CutPieces(std::span<const int64_t> sizes) {
  Cut cut;
  cut.pieces = sizes.size();
  int64_t all = 0;
  for (int64_t size : sizes) all += size;
  const int64_t most = std::max(kLeastVectorPart, CeilDiv(all, kMostVectorParts));
  for (size_t piece = 0; piece < sizes.size(); ++piece) {
    const int64_t end = cut.elements + sizes[piece];
    while (cut.elements < end) {
      const int64_t next = std::min(end, cut.elements + most);
      cut.parts.push_back({.begin = cut.elements, .end = next});
      cut.piece_of.push_back(piece);
      cut.elements = next;
    }
  }
  return cut;
}

int64_t DeviceVectors::Bytes(std::span<const int64_t> sizes) {
  const size_t parts = CutPieces(sizes).parts.size();
  return Arena::Padded(static_cast<int64_t>(sizeof(VectorPiece) * parts)) +
         Arena::Padded(SumBytes(parts));
}

absl::StatusOr<DeviceVectors> DeviceVectors::Create(ComputeDevice& device,
                                                    std::span<const int64_t> sizes) {
  DeviceVectors vectors(device, CutPieces(sizes));
  const std::vector<VectorPiece>& parts = vectors.cut_.parts;
  constexpr std::string_view kWhat = "sums over vectors";
  PTQWATCH_ASSIGN_OR_RETURN(vectors.table_,
                            device.arena().TakeArray<VectorPiece>(std::ssize(parts), kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(vectors.sums_,
                            device.arena().TakeArray<double>(kMaxBatch * std::ssize(parts), kWhat));
  PTQWATCH_RETURN_IF_ERROR(device.Upload(vectors.table_, parts.data(),
                                         static_cast<int64_t>(sizeof(VectorPiece) * parts.size())));
  return vectors;
}

template <typename T>
absl::Status DeviceVectors::FillSigns(uint64_t seed, T* x) {
  return device_->Run(DrawSigns<T>{.seed = seed, .size = cut_.elements, .out = x});
}

template <typename T>
absl::StatusOr<std::vector<double>> DeviceVectors::Dots(std::span<const T* const> xs, const T* y) {
  const size_t parts = cut_.parts.size();
  std::vector<double> dots(xs.size() * cut_.pieces);
  std::vector<double> sums;
  for (size_t first = 0; first < xs.size() && parts > 0; first += kMaxBatch) {
    const size_t count = std::min<size_t>(kMaxBatch, xs.size() - first);
    PTQWATCH_RETURN_IF_ERROR(device_->Run(DotPieces<T>{.vectors = static_cast<int>(count),
                                                       .pieces = static_cast<int64_t>(parts),
                                                       .table = table_,
                                                       .x = Pointers(xs.subspan(first, count)),
                                                       .y = y,
                                                       .sums = sums_}));
    sums.resize(count * parts);
    const HostCopy copy{.host = sums.data(),
                        .from = sums_,
                        .bytes = static_cast<int64_t>(sizeof(double) * sums.size())};
    PTQWATCH_RETURN_IF_ERROR(device_->Read({&copy, 1}));
    for (size_t i = 0; i < count; ++i) {
      double* const dot = dots.data() + (first + i) * cut_.pieces;
      for (size_t part = 0; part < parts; ++part)
        dot[cut_.piece_of[part]] += sums[i * parts + part];
    }
  }
  return dots;
}

template <typename T>
absl::Status DeviceVectors::Add(std::span<const double> factors, std::span<const T* const> xs,
                                T* y) {
  for (size_t first = 0; first < xs.size(); first += kMaxBatch) {
    const size_t count = std::min<size_t>(kMaxBatch, xs.size() - first);
    AddScaled<T> add{.vectors = static_cast<int>(count),
                     .size = cut_.elements,
                     .x = Pointers(xs.subspan(first, count)),
                     .y = y};
    std::copy_n(factors.begin() + static_cast<int64_t>(first), count, add.factors);
    PTQWATCH_RETURN_IF_ERROR(device_->Run(add));
  }
  return absl::OkStatus();
}

template absl::Status DeviceVectors::FillSigns(uint64_t, float*);
template absl::Status DeviceVectors::FillSigns(uint64_t, double*);
template absl::StatusOr<std::vector<double>> DeviceVectors::Dots(std::span<const float* const>,
                                                                 const float*);
template absl::StatusOr<std::vector<double>> DeviceVectors::Dots(std::span<const double* const>,
                                                                 const double*);
template absl::Status DeviceVectors::Add(std::span<const double>, std::span<const float* const>,
                                         float*);
template absl::Status DeviceVectors::Add(std::span<const double>, std::span<const double* const>,
                                         double*);

}  // namespace ptqwatch::internal
