#include <time.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "monitor/cost_model.h"
#include "ptqwatch/offline/plan_from_shapes.h"

namespace ptqwatch {
namespace {

constexpr int64_t kWidths[] = {64, 256, 1024};
constexpr int64_t kRepeats = 3;
// A full product reaches more FLOP/s than the triangle of a Gram matrix with its float64 sums.
constexpr double kProductOverGram = 1.2;
constexpr int64_t kStreamed = int64_t{1} << 20;

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The least CPU time of several calls.
absl::StatusOr<double> Time(const std::function<absl::Status()>& work) {
  double least = std::numeric_limits<double>::max();
  for (int64_t i = 0; i < kRepeats; ++i) {
    const double begin = ThreadSeconds();
    PTQWATCH_RETURN_IF_ERROR(work());
    least = std::min(least, ThreadSeconds() - begin);
  }
  return std::max(least, 1e-9);
}

std::vector<float> Normal(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

absl::StatusOr<MachineRates::OfWidth> MeasureWidth(int64_t inputs,
                                                   absl::Span<const QuantizerSpec> quantizers,
                                                   const ExecutionContext& context) {
  std::mt19937_64 random(1);
  const int64_t tokens = std::max<int64_t>(1024, inputs);
  const std::vector<float> weight = Normal(inputs * inputs, random);
  const std::vector<float> x = Normal(tokens * inputs, random);
  GramStatistics statistics;
  PTQWATCH_ASSIGN_OR_RETURN(
      const double gram, Time([&]() -> absl::Status {
        GramAccumulator accumulator(inputs);
        PTQWATCH_RETURN_IF_ERROR(accumulator.Add({x.data(), tokens, inputs}, context));
        statistics = accumulator.Take();
        return absl::OkStatus();
      }));
  MachineRates::OfWidth rates{.inputs = inputs, .gram = internal::GramFlop(tokens, inputs) / gram};
  for (const QuantizerSpec& spec : quantizers) {
    PTQWATCH_ASSIGN_OR_RETURN(
        const double seconds, Time([&] {
          return Quantize({weight.data(), inputs, inputs}, &statistics, spec, context).status();
        }));
    rates.quantize.push_back(internal::QuantizeFlop(spec, inputs, inputs) / seconds);
  }
  return rates;
}

}  // namespace

absl::StatusOr<MachineRates> MeasureMachineRates(absl::Span<const QuantizerSpec> quantizers,
                                                 const ExecutionContext& context) {
  MachineRates rates;
  for (const int64_t inputs : kWidths) {
    PTQWATCH_ASSIGN_OR_RETURN(MachineRates::OfWidth width,
                              MeasureWidth(inputs, quantizers, context));
    rates.widths.push_back(std::move(width));
  }
  rates.product = kProductOverGram * rates.widths.back().gram;
  std::vector<float> from(kStreamed, 1.0F);
  std::vector<float> to(kStreamed, 2.0F);
  PTQWATCH_ASSIGN_OR_RETURN(const double seconds, Time([&] {
                              for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
                              return absl::OkStatus();
                            }));
  // Two reads and a write; a copy is a read and a write.
  rates.activation_seconds = seconds / (3.0 * kStreamed);
  rates.copied_bytes = 4 / (2 * rates.activation_seconds);
  return rates;
}

}  // namespace ptqwatch
