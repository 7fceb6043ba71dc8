#include "cuda/device_gram.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/gram_products.h"

namespace ptqwatch::internal {
namespace {

// As on the CPU: float64 is cheap for a small layer, where a single code is a visible share of all.
constexpr int64_t kFloat64Inputs = 256;
// Rows that are staged and multiplied together.
constexpr int64_t kChunkRows = 8192;
// The same for rows in place, which take little memory: adding the products to the float64 sums
// takes as long as the products of some 2000 rows.
constexpr int64_t kChunkRowsInPlace = 4 * kChunkRows;
// Rows read twice in a row: few enough that the second read mostly hits the cache, many enough for
// launches that fill a device. In place there is nothing to write, and fewer launches save more.
constexpr int64_t kStageRows = 4096;
int64_t StagedTogether(bool in_place) { return in_place ? kChunkRowsInPlace : kStageRows; }

// Why float32 is split in two. The table shows the share of codes that differ from the engine's,
// and the largest relative error of a loss, on a host that emulates the sums of matrix units, for 3
// and 4 bits, damp 0.01, 256 x d weights, correlated inputs with 8 outlier channels, two seeds (one
// for 16384 tokens):
//   inputs, tokens   cut to TF32     two bfloat16, 3 products   4 products        bfloat16 inputs
//   512, 4096        0.15-0.77 %     0.00-0.07 %, 4e-4          0.00-0.07 %, 5e-4   0.00-0.04 %
//   1024, 4096       0.89-1.88 %     0.03-0.13 %, 5e-4          0.01-0.20 %, 3e-4   0.03-0.22 %
//   1024, 16384      0.32-0.47 %                                0.04-0.21 %, 5e-4   0.10-0.22 %
//   1024, 512        2.52-3.10 %     0.14-0.26 %, 9e-4          0.00-0.12 %, 4e-4   0.04-0.06 %
// The engine itself differs by 0.00-0.26 % from float64 sums there. With the fourth product the
// result is an exact Gram matrix; without it, the diagonal is too small by 3e-6 of itself.
bool Wide(int64_t inputs) { return inputs <= kFloat64Inputs; }
// Matrix units read 16 bytes at a time.
constexpr int64_t kNumbersOf16Bytes = 8;
int64_t PaddedToEight(int64_t inputs) {
  return CeilDiv(inputs, kNumbersOf16Bytes) * kNumbersOf16Bytes;
}

// Whether matrix units can read such rows where they are, if they are aligned.
bool MayBeInPlace(int64_t inputs, RowType type) {
  return !Wide(inputs) && type != RowType::kFloat32 && inputs % kNumbersOf16Bytes == 0;
}
bool AreInPlace(const DeviceRows& rows) {
  return MayBeInPlace(rows.cols, rows.type) && rows.stride % kNumbersOf16Bytes == 0 &&
         reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
}

// The rows from `first` on, at most `count`.
DeviceRows Some(DeviceRows rows, int64_t first, int64_t count) {
  rows.data = static_cast<const char*>(rows.data) +
              first * rows.stride * (rows.type == RowType::kFloat32 ? 4 : 2);
  rows.rows = std::min(count, rows.rows - first);
  return rows;
}

int64_t SlabsOf(int64_t rows) { return CeilDiv(rows, SumColumns::kSlabRows); }

}  // namespace

int64_t DeviceGram::Bytes(int64_t inputs) {
  return Arena::Padded(8 * inputs * inputs) + Arena::Padded(8 * inputs) +
         Arena::Padded(4 * inputs) + Arena::Padded(16);
}

int64_t DeviceGram::WorkingBytes(int64_t inputs, int64_t rows, RowType type) {
  const auto bytes = [&](bool in_place) {
    Arena measure(nullptr, INT64_MAX);
    return TakeStaging(inputs, rows, type, in_place, measure).ok() ? measure.used() : INT64_MAX;
  };
  return MayBeInPlace(inputs, type) ? std::max(bytes(false), bytes(true)) : bytes(false);
}

absl::StatusOr<DeviceGram> DeviceGram::Create(ComputeDevice& device, int64_t inputs) {
  if (inputs < 1) return absl::InvalidArgumentError(StrCat("inputs is ", inputs));
  DeviceGram gram(device, inputs);
  Arena& arena = device.arena();
  const int64_t begin = arena.used();
  const auto take = [&]() -> absl::Status {
    constexpr char kWhat[] = "the second moments of a layer's inputs";
    DeviceMoments& moments = gram.moments_;
    PTQWATCH_ASSIGN_OR_RETURN(moments.sum, arena.TakeArray<double>(inputs * inputs, kWhat));
    PTQWATCH_ASSIGN_OR_RETURN(moments.abs_sum, arena.TakeArray<double>(inputs, kWhat));
    PTQWATCH_ASSIGN_OR_RETURN(moments.abs_max, arena.TakeArray<float>(inputs, kWhat));
    PTQWATCH_ASSIGN_OR_RETURN(moments.counts, arena.TakeArray<int64_t>(2, kWhat));
    PTQWATCH_RETURN_IF_ERROR(device.Zero(moments.sum, 8 * inputs * inputs));
    PTQWATCH_RETURN_IF_ERROR(device.Zero(moments.abs_sum, 8 * inputs));
    PTQWATCH_RETURN_IF_ERROR(device.Zero(moments.abs_max, 4 * inputs));
    return device.Zero(moments.counts, 16);
  };
  if (const absl::Status status = take(); !status.ok()) {
    arena.ReturnTo(begin);
    return status;
  }
  return gram;
}

absl::StatusOr<DeviceGram> DeviceGram::FromHost(ComputeDevice& device,
                                                const GramStatistics& statistics) {
  const int64_t d = statistics.inputs;
  const auto fits = [](const auto& values, int64_t count, bool may_be_empty) {
    return static_cast<int64_t>(values.size()) == count || (may_be_empty && values.empty());
  };
  if (!fits(statistics.sum, d * d, false) || !fits(statistics.abs_sum, d, true) ||
      !fits(statistics.abs_max, d, true) || statistics.tokens < 0 || statistics.skipped_rows < 0) {
    return absl::InvalidArgumentError(StrCat("second moments of ", d, " inputs hold ",
                                             statistics.sum.size(), " sums, ", statistics.tokens,
                                             " tokens"));
  }
  PTQWATCH_ASSIGN_OR_RETURN(DeviceGram gram, Create(device, d));
  const auto upload = [&](void* to, const auto& values) {
    return device.Upload(to, values.data(),
                         static_cast<int64_t>(values.size() * sizeof(values[0])));
  };
  const int64_t counts[] = {statistics.tokens, statistics.skipped_rows};
  PTQWATCH_RETURN_IF_ERROR(upload(gram.moments_.sum, statistics.sum));
  PTQWATCH_RETURN_IF_ERROR(upload(gram.moments_.abs_sum, statistics.abs_sum));
  PTQWATCH_RETURN_IF_ERROR(upload(gram.moments_.abs_max, statistics.abs_max));
  PTQWATCH_RETURN_IF_ERROR(device.Upload(gram.moments_.counts, counts, sizeof(counts)));
  gram.rows_ = statistics.tokens + statistics.skipped_rows;
  gram.finished_ = true;
  return gram;
}

DeviceGram DeviceGram::OfShape(ComputeDevice& device, int64_t inputs) {
  DeviceGram gram(device, inputs);
  gram.rows_ = INT32_MAX;
  gram.finished_ = true;
  return gram;
}

absl::StatusOr<DeviceGram::Staging> DeviceGram::TakeStaging(int64_t inputs, int64_t rows,
                                                            RowType type, bool in_place,
                                                            Arena& arena) {
  constexpr char kWhat[] = "a chunk of a layer's inputs";
  const int64_t padded = PaddedToEight(inputs);
  Staging staging;
  staging.in_place = in_place;
  staging.rows = std::min(rows, in_place ? kChunkRowsInPlace : kChunkRows);
  const int64_t slabs = SlabsOf(std::min(staging.rows, StagedTogether(in_place)));
  PTQWATCH_ASSIGN_OR_RETURN(staging.finite, arena.TakeArray<uint8_t>(staging.rows, kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(staging.sums, arena.TakeArray<double>(slabs * inputs, kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(staging.maxima, arena.TakeArray<float>(slabs * inputs, kWhat));
  if (Wide(inputs)) {
    PTQWATCH_ASSIGN_OR_RETURN(staging.wide, arena.TakeArray<double>(staging.rows * padded, kWhat));
    return staging;
  }
  if (in_place) {
    PTQWATCH_ASSIGN_OR_RETURN(staging.skipped, arena.TakeArray<int64_t>(1, kWhat));
  } else {
    PTQWATCH_ASSIGN_OR_RETURN(staging.bits16,
                              arena.TakeArray<uint16_t>(staging.rows * padded, kWhat));
  }
  if (type == RowType::kFloat32) {
    PTQWATCH_ASSIGN_OR_RETURN(staging.rest16,
                              arena.TakeArray<uint16_t>(staging.rows * padded, kWhat));
  }
  PTQWATCH_ASSIGN_OR_RETURN(staging.panel,
                            arena.TakeArray<float>(PanelNumbers(padded, staging.rows), kWhat));
  return staging;
}

absl::Status DeviceGram::Add(const DeviceRows& rows, const ExecutionContext& context) {
  if (finished_) return absl::InvalidArgumentError("Add was called after Finish");
  if (rows.cols != moments_.inputs || rows.rows < 0 || rows.stride < rows.cols) {
    return absl::InvalidArgumentError(StrCat("rows are [", rows.rows, ", ", rows.cols, "], stride ",
                                             rows.stride, ", for ", moments_.inputs, " inputs"));
  }
  if (rows.rows == 0) return absl::OkStatus();
  if (rows.data == nullptr) return absl::InvalidArgumentError("rows.data is null");
  ArenaScope scope(device_->arena());
  PTQWATCH_ASSIGN_OR_RETURN(const Staging staging, TakeStaging(rows.cols, rows.rows, rows.type,
                                                               AreInPlace(rows), device_->arena()));
  Queue queue(*device_, context);
  for (int64_t first = 0; first < rows.rows; first += staging.rows) {
    PTQWATCH_RETURN_IF_ERROR(AddChunk(Some(rows, first, staging.rows), staging, queue));
  }
  rows_ += rows.rows;
  return absl::OkStatus();
}

absl::Status DeviceGram::AddChunk(const DeviceRows& rows, const Staging& staging, Queue& queue) {
  const int64_t together = StagedTogether(staging.in_place);
  for (int64_t first = 0; first < rows.rows; first += together) {
    PTQWATCH_RETURN_IF_ERROR(Stage(Some(rows, first, together), first, staging, queue));
  }
  const int64_t inputs = moments_.inputs;
  const int64_t padded = PaddedToEight(inputs);
  if (Wide(inputs)) {
    return queue.Multiply({.arithmetic = Arithmetic::kFloat64,
                           .transpose_b = true,
                           .m = inputs,
                           .n = inputs,
                           .k = rows.rows,
                           .a = staging.wide,
                           .lda = padded,
                           .b = staging.wide,
                           .ldb = padded,
                           .beta = 1,
                           .c = moments_.sum,
                           .ldc = inputs});
  }
  ProductRows factors{.type = rows.type,
                      .rows = rows.rows,
                      .stride = padded,
                      .bits16 = staging.bits16,
                      .rest16 = staging.rest16,
                      .width = padded};
  if (staging.in_place) {
    factors.stride = rows.stride;
    factors.bits16 = static_cast<const uint16_t*>(rows.data);
    factors.finite = staging.finite;
    factors.skipped = staging.skipped;
  }
  return AddProducts(factors, inputs, staging.panel, moments_.sum, queue);
}

// Reads some rows of a chunk, from its row `first` on.
absl::Status DeviceGram::Stage(const DeviceRows& rows, int64_t first, const Staging& staging,
                               Queue& queue) {
  const int64_t padded = PaddedToEight(moments_.inputs);
  const auto from = [&](auto* numbers) {
    return numbers == nullptr ? nullptr : numbers + first * padded;
  };
  uint8_t* const finite = staging.finite + first;
  if (staging.in_place) {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(FlagRows{.rows = rows, .finite = finite}));
  } else {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(StageRows{.rows = rows,
                                                 .padded = padded,
                                                 .bits16 = from(staging.bits16),
                                                 .rest16 = from(staging.rest16),
                                                 .wide = from(staging.wide),
                                                 .finite = finite}));
  }
  const SumColumns sums{
      .rows = rows, .finite = finite, .sums = staging.sums, .maxima = staging.maxima};
  PTQWATCH_RETURN_IF_ERROR(queue.Run(sums));
  return queue.Run(AddColumns{.rows = rows.rows,
                              .cols = rows.cols,
                              .slabs = sums.Slabs(),
                              .finite = finite,
                              .sums = staging.sums,
                              .maxima = staging.maxima,
                              .abs_sum = moments_.abs_sum,
                              .abs_max = moments_.abs_max,
                              .counts = moments_.counts,
                              .begins = first == 0,
                              .skipped = staging.skipped});
}

absl::Status DeviceGram::Finish(const ExecutionContext& context) {
  if (finished_) return absl::FailedPreconditionError("Finish was called before");
  Queue queue(*device_, context);
  PTQWATCH_RETURN_IF_ERROR(queue.Run(MirrorSum{.sum = moments_.sum, .cols = moments_.inputs}));
  finished_ = true;
  return absl::OkStatus();
}

absl::StatusOr<GramStatistics> DeviceGram::CopyToHost() const {
  if (!finished_) return absl::FailedPreconditionError("CopyToHost was called before Finish");
  const int64_t d = moments_.inputs;
  GramStatistics stats;
  stats.inputs = d;
  stats.sum.resize(static_cast<size_t>(d * d));
  stats.abs_sum.resize(static_cast<size_t>(d));
  stats.abs_max.resize(static_cast<size_t>(d));
  int64_t counts[2] = {};
  const HostCopy copies[] = {
      {.host = stats.sum.data(), .from = moments_.sum, .bytes = 8 * d * d},
      {.host = stats.abs_sum.data(), .from = moments_.abs_sum, .bytes = 8 * d},
      {.host = stats.abs_max.data(), .from = moments_.abs_max, .bytes = 4 * d},
      {.host = counts, .from = moments_.counts, .bytes = sizeof(counts)}};
  PTQWATCH_RETURN_IF_ERROR(device_->Read(copies));
  stats.tokens = counts[0];
  stats.skipped_rows = counts[1];
  return stats;
}

}  // namespace ptqwatch::internal
