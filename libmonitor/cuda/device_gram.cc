#include "cuda/device_gram.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// As on the CPU: float64 is cheap for a small layer, where a single code is a visible share of all.
constexpr int64_t kFloat64Inputs = 256;
// Rows whose products are summed in float32. Adding a chunk to the float64 sums takes as long as
// the products of some 2000 rows.
constexpr int64_t kChunkRows = 8192;
// Rows staged at a time: few enough that the second read mostly hits the cache, many enough for
// launches that fill a device.
constexpr int64_t kStageRows = 4096;
// Rows of the result computed at a time. Half of a panel's diagonal square is below the diagonal
// and wasted. At 8192 inputs a product takes about 0.1 ms on an H100.
constexpr int64_t kPanel = 512;

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
int64_t PaddedToEight(int64_t inputs) { return CeilDiv(inputs, 8) * 8; }
// The number of slices of a chunk's rows whose products [width, count] are computed side by side.
// Chosen to give each of the 132 multiprocessors of an H100, most of which would otherwise be idle,
// two tiles of 128 x 256. More than eight slices would cost more in AddPanel.
//
// Limits for a chunk of 8192 rows and 4096 inputs in bfloat16 on an H100, by arithmetic: 0.14 ms
// for products at peak, 0.04 ms for results below the diagonal and for partly filled waves of
// tiles, 0.07 ms for adding to the float64 sums, 0.05 ms for staging.
int64_t SlicesOf(int64_t width, int64_t count, int64_t rows) {
  constexpr int64_t kTiles = 2 * 132;
  constexpr int64_t kMostSlices = 8;
  constexpr int64_t kLeastRows = 512;
  const int64_t fit = kTiles / (CeilDiv(width, 128) * CeilDiv(count, 256));
  return std::clamp<int64_t>(std::min(fit, rows / kLeastRows), 1, kMostSlices);
}

// The elements of the largest panel, with its slices.
int64_t PanelNumbers(int64_t padded, int64_t rows) {
  int64_t most = 0;
  for (int64_t first = 0; first < padded; first += kPanel) {
    const int64_t width = padded - first;
    const int64_t count = std::min(kPanel, width);
    most = std::max(most, SlicesOf(width, count, rows) * width * count);
  }
  return most;
}

// Computes the products of every slice. The first slice also gets the remaining rows.
absl::Status MultiplySlices(MatrixProduct product, const uint16_t* a, const uint16_t* b,
                            int64_t rows, double beta, Queue& queue) {
  product.k = rows / product.batch;
  product.a = a;
  product.b = b;
  product.stride_a = product.stride_b = product.k * product.lda;
  product.beta = beta;
  PTQWATCH_RETURN_IF_ERROR(queue.Multiply(product));
  const int64_t done = product.k * product.batch;
  if (done == rows) return absl::OkStatus();
  product.k = rows - done;
  product.a = a + done * product.lda;
  product.b = b + done * product.ldb;
  product.batch = 1;
  product.beta = 1;
  return queue.Multiply(product);
}

int64_t SlabsOf(int64_t rows) { return CeilDiv(rows, SumColumns::kSlabRows); }

}  // namespace

int64_t DeviceGram::Bytes(int64_t inputs) {
  return Arena::Padded(8 * inputs * inputs) + Arena::Padded(8 * inputs) +
         Arena::Padded(4 * inputs) + Arena::Padded(16);
}

int64_t DeviceGram::WorkingBytes(int64_t inputs, int64_t rows, RowType type) {
  const int64_t chunk = std::min(rows, kChunkRows);
  const int64_t padded = PaddedToEight(inputs);
  const int64_t slabs = SlabsOf(std::min(rows, kStageRows));
  int64_t bytes =
      Arena::Padded(chunk) + Arena::Padded(8 * slabs * inputs) + Arena::Padded(4 * slabs * inputs);
  if (Wide(inputs)) return bytes + Arena::Padded(8 * chunk * padded);
  bytes += Arena::Padded(2 * chunk * padded) * (type == RowType::kFloat32 ? 2 : 1);
  return bytes + Arena::Padded(4 * PanelNumbers(padded, chunk));
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

absl::StatusOr<DeviceGram::Staging> DeviceGram::TakeStaging(int64_t rows, RowType type) {
  constexpr char kWhat[] = "a chunk of a layer's inputs";
  Arena& arena = device_->arena();
  const int64_t inputs = moments_.inputs;
  const int64_t padded = PaddedToEight(inputs);
  const int64_t slabs = SlabsOf(std::min(rows, kStageRows));
  Staging staging;
  PTQWATCH_ASSIGN_OR_RETURN(staging.finite, arena.TakeArray<uint8_t>(rows, kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(staging.sums, arena.TakeArray<double>(slabs * inputs, kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(staging.maxima, arena.TakeArray<float>(slabs * inputs, kWhat));
  if (Wide(inputs)) {
    PTQWATCH_ASSIGN_OR_RETURN(staging.wide, arena.TakeArray<double>(rows * padded, kWhat));
    return staging;
  }
  PTQWATCH_ASSIGN_OR_RETURN(staging.bits16, arena.TakeArray<uint16_t>(rows * padded, kWhat));
  if (type == RowType::kFloat32) {
    PTQWATCH_ASSIGN_OR_RETURN(staging.rest16, arena.TakeArray<uint16_t>(rows * padded, kWhat));
  }
  PTQWATCH_ASSIGN_OR_RETURN(staging.panel,
                            arena.TakeArray<float>(PanelNumbers(padded, rows), kWhat));
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
  PTQWATCH_ASSIGN_OR_RETURN(const Staging staging,
                            TakeStaging(std::min(rows.rows, kChunkRows), rows.type));
  Queue queue(*device_, context);
  for (int64_t first = 0; first < rows.rows; first += kChunkRows) {
    DeviceRows chunk = rows;
    chunk.rows = std::min(kChunkRows, rows.rows - first);
    chunk.data = static_cast<const char*>(rows.data) +
                 first * rows.stride * (rows.type == RowType::kFloat32 ? 4 : 2);
    PTQWATCH_RETURN_IF_ERROR(AddChunk(chunk, staging, queue));
  }
  rows_ += rows.rows;
  return absl::OkStatus();
}

absl::Status DeviceGram::AddChunk(const DeviceRows& rows, const Staging& staging, Queue& queue) {
  const int64_t padded = PaddedToEight(moments_.inputs);
  for (int64_t first = 0; first < rows.rows; first += kStageRows) {
    DeviceRows part = rows;
    part.rows = std::min(kStageRows, rows.rows - first);
    part.data = static_cast<const char*>(rows.data) +
                first * rows.stride * (rows.type == RowType::kFloat32 ? 4 : 2);
    Staging to = staging;
    to.finite += first;
    if (to.bits16 != nullptr) to.bits16 += first * padded;
    if (to.rest16 != nullptr) to.rest16 += first * padded;
    if (to.wide != nullptr) to.wide += first * padded;
    PTQWATCH_RETURN_IF_ERROR(Stage(part, to, queue));
  }
  return AddProducts(rows, staging, queue);
}

absl::Status DeviceGram::Stage(const DeviceRows& rows, const Staging& staging, Queue& queue) {
  PTQWATCH_RETURN_IF_ERROR(queue.Run(StageRows{.rows = rows,
                                               .padded = PaddedToEight(moments_.inputs),
                                               .bits16 = staging.bits16,
                                               .rest16 = staging.rest16,
                                               .wide = staging.wide,
                                               .finite = staging.finite}));
  const SumColumns sums{
      .rows = rows, .finite = staging.finite, .sums = staging.sums, .maxima = staging.maxima};
  PTQWATCH_RETURN_IF_ERROR(queue.Run(sums));
  return queue.Run(AddColumns{.rows = rows.rows,
                              .cols = rows.cols,
                              .slabs = sums.Slabs(),
                              .finite = staging.finite,
                              .sums = staging.sums,
                              .maxima = staging.maxima,
                              .abs_sum = moments_.abs_sum,
                              .abs_max = moments_.abs_max,
                              .counts = moments_.counts});
}

absl::Status DeviceGram::AddProducts(const DeviceRows& rows, const Staging& staging, Queue& queue) {
  const int64_t inputs = moments_.inputs;
  const int64_t padded = PaddedToEight(inputs);
  // In column-major terms, X^T is [inputs, rows]. The result is symmetric.
  MatrixProduct product{.transpose_b = true, .k = rows.rows, .lda = padded, .ldb = padded};
  if (Wide(inputs)) {
    product.arithmetic = Arithmetic::kFloat64;
    product.m = product.n = product.ldc = inputs;
    product.a = product.b = staging.wide;
    product.beta = 1;
    product.c = moments_.sum;
    return queue.Multiply(product);
  }
  product.arithmetic =
      rows.type == RowType::kFloat16 ? Arithmetic::kFloat16 : Arithmetic::kBFloat16;
  product.c = staging.panel;
  for (int64_t first = 0; first < inputs; first += kPanel) {
    product.m = product.ldc = padded - first;
    product.n = std::min(kPanel, padded - first);
    product.batch = SlicesOf(product.m, product.n, rows.rows);
    product.stride_c = product.m * product.n;
    const auto multiply = [&](const uint16_t* a, const uint16_t* b, double beta) {
      return MultiplySlices(product, a + first, b + first, rows.rows, beta, queue);
    };
    if (rows.type == RowType::kFloat32) {
      // Adds the smallest products first.
      PTQWATCH_RETURN_IF_ERROR(multiply(staging.rest16, staging.rest16, 0));
      PTQWATCH_RETURN_IF_ERROR(multiply(staging.rest16, staging.bits16, 1));
      PTQWATCH_RETURN_IF_ERROR(multiply(staging.bits16, staging.rest16, 1));
    }
    PTQWATCH_RETURN_IF_ERROR(
        multiply(staging.bits16, staging.bits16, rows.type == RowType::kFloat32 ? 1 : 0));
    PTQWATCH_RETURN_IF_ERROR(queue.Run(AddPanel{.panel = staging.panel,
                                                .slices = product.batch,
                                                .width = product.ldc,
                                                .first = first,
                                                .count = std::min(kPanel, inputs - first),
                                                .stride = product.stride_c,
                                                .cols = inputs,
                                                .sum = moments_.sum}));
  }
  return absl::OkStatus();
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
