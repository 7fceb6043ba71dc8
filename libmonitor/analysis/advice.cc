#include "analysis/advice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr double kLeastSigmas = 2;

template <typename Key>
const QuantizationReport* Find(const std::vector<QuantizationReport>& entries, const Key& key) {
  for (const QuantizationReport& entry : entries) {
    if (SameQuantizer(entry, key) && entry.status == ProbeStatus::kOk && entry.loss_nats &&
        entry.delta_nats) {
      return &entry;
    }
  }
  return nullptr;
}

double Gain(const Advice& advice) {
  return advice.now_nats.value_or(0) - advice.expected_nats.value_or(0);
}

bool Worth(const Advice& advice) {
  return Gain(advice) > kLeastSigmas * advice.expected_stderr_nats.value_or(0);
}

template <typename Key>
Advice Named(AdviceAction action, const Key& key) {
  Advice advice;
  advice.action = action;
  advice.method = key.method;
  advice.bits = key.bits;
  advice.format = key.format;
  return advice;
}

std::string NameOf(const AveragingReport& average) {
  if (average.kind == AveragingKind::kExponential) {
    return StrFormat("the exponential average with decay %g", average.decay.value_or(0));
  }
  if (average.kind != AveragingKind::kMerge) {
    return StrFormat("the mean of the last %d snapshots", average.snapshots);
  }
  std::string shape(ToString(average.shape));
  std::replace(shape.begin(), shape.end(), '_', ' ');
  return StrFormat("the merge of the last %d snapshots that emulates a %s decay", average.snapshots,
                   shape);
}

// Advice to use the average, with its gain for the quantizer of `then`: paired if it was measured.
Advice UseOf(const AveragingReport& average, const QuantizationReport& now,
             const QuantizationReport& then) {
  Advice advice = Named(AdviceAction::kAverageWeights, then);
  advice.now_nats = now.loss_nats;
  advice.expected_nats = then.change_nats ? *now.loss_nats + *then.change_nats : *then.loss_nats;
  advice.expected_stderr_nats =
      then.change_stderr_nats
          ? *then.change_stderr_nats
          : std::hypot(now.delta_stderr_nats.value_or(0), then.delta_stderr_nats.value_or(0));
  advice.text = StrFormat(
      "use %s: loss with %s %.4f -> %.4f, a gain of %.4f (+-%.4f) nats; loss increase %.3g -> %.3g",
      NameOf(average), LabelOf(KeyOf(then)), *advice.now_nats, *advice.expected_nats, Gain(advice),
      *advice.expected_stderr_nats, *now.delta_nats, *then.delta_nats);
  return advice;
}

// Adds the best average for the verdict's quantizer, and for another width of 3 or 4 bits.
void AddAverages(const Report& report, const Verdict& verdict, std::vector<Advice>& all) {
  std::map<int, Advice> best;  // by bits
  for (const AveragingReport& average : report.averaging) {
    if (average.status != ProbeStatus::kOk) continue;
    for (const QuantizationReport& entry : average.quantization) {
      const bool other_width = (entry.bits == 3 || entry.bits == 4) && entry.bits != verdict.bits;
      if (!SameQuantizer(entry, verdict) && !other_width) continue;
      const QuantizationReport* now = Find(report.quantization, entry);
      const QuantizationReport* then = Find(average.quantization, entry);
      if (now == nullptr || then == nullptr) continue;
      Advice advice = UseOf(average, *now, *then);
      const auto found = best.find(entry.bits);
      if (!Worth(advice)) continue;
      if (found != best.end() && *found->second.expected_nats <= *advice.expected_nats) continue;
      best.insert_or_assign(entry.bits, std::move(advice));
    }
  }
  for (auto& [bits, advice] : best) all.push_back(std::move(advice));
}

void AddRaisedLayers(const Report& report, const Verdict& verdict, const QuantizationReport& now,
                     std::vector<Advice>& all) {
  for (const MixedPrecisionReport& mixed : report.mixed_precision) {
    if (mixed.status != ProbeStatus::kOk || !mixed.delta_nats || mixed.raised_layers.empty() ||
        !SameQuantizer(mixed, verdict)) {
      continue;
    }
    Advice advice = Named(AdviceAction::kRaiseBits, verdict);
    advice.now_nats = now.delta_nats;
    advice.expected_nats = mixed.delta_nats;
    advice.expected_stderr_nats =
        std::hypot(now.delta_stderr_nats.value_or(0), mixed.delta_stderr_nats.value_or(0));
    if (!Worth(advice)) continue;
    const size_t others = mixed.raised_layers.size() - 1;
    const std::string more = others == 0 ? "" : StrFormat(" and %d more", others);
    advice.text = StrFormat(
        "keep %s%s at %d bits, the rest at %d (%.2f on average): loss increase %.3g -> %.3g "
        "(+-%.2g) nats",
        mixed.raised_layers[0], more, mixed.raised_bits, mixed.bits, mixed.mean_bits,
        *advice.now_nats, *advice.expected_nats, *advice.expected_stderr_nats);
    all.push_back(std::move(advice));
  }
}

// Adds the quantizer of the run that loses least in no more bytes than the watched one, if it loses
// less than that.
void AddQuantizer(const Report& report, const Verdict& verdict, const QuantizationReport& now,
                  std::vector<Advice>& all) {
  if (!now.artifact_bytes) return;
  const QuantizationReport* best = &now;
  for (const QuantizationReport& entry : report.quantization) {
    const bool measured = entry.status == ProbeStatus::kOk && entry.delta_nats;
    if (!measured || !entry.artifact_bytes || *entry.artifact_bytes > *now.artifact_bytes) continue;
    if (*entry.delta_nats < *best->delta_nats) best = &entry;
  }
  if (SameQuantizer(*best, verdict)) return;
  Advice advice = Named(AdviceAction::kUseQuantizer, *best);
  advice.now_nats = now.delta_nats;
  advice.expected_nats = best->delta_nats;
  // Each increase is paired with the full-precision loss, and the two are positively correlated:
  // taken as independent, their difference looks less certain than it is.
  advice.expected_stderr_nats =
      std::hypot(now.delta_stderr_nats.value_or(0), best->delta_stderr_nats.value_or(0));
  if (!Worth(advice)) return;
  const auto megabytes = [](int64_t bytes) { return 1e-6 * static_cast<double>(bytes); };
  advice.text = StrFormat(
      "use %s instead of %s: of the run's quantizers it loses least in no more bytes, %.3f MB "
      "instead of %.3f; loss increase %.3g -> %.3g (+-%.2g) nats",
      LabelOf(KeyOf(*best)), LabelOf(KeyOf(now)), megabytes(*best->artifact_bytes),
      megabytes(*now.artifact_bytes), *advice.now_nats, *advice.expected_nats,
      *advice.expected_stderr_nats);
  all.push_back(std::move(advice));
}

void AddStop(const Verdict& verdict, const QuantizationReport& now, std::vector<Advice>& all) {
  for (const DecayOutlook& outlook : verdict.outlook) {
    if (!SameQuantizer(outlook, verdict)) continue;
    if (!outlook.minimum_loss_nats || !outlook.minimum_step) continue;
    Advice advice = Named(AdviceAction::kStopDecay, verdict);
    advice.now_nats = now.loss_nats;
    advice.expected_nats = outlook.minimum_loss_nats;
    advice.text = StrFormat(
        "stop the decay: the quantized loss was lowest (%.4f) at step %d with learning rate %.3g, "
        "and is %.4f now",
        *outlook.minimum_loss_nats, *outlook.minimum_step,
        outlook.minimum_learning_rate.value_or(0), *now.loss_nats);
    if (Gain(advice) > 0) all.push_back(std::move(advice));
  }
}

}  // namespace

std::vector<Advice> AdviceFor(const Report& report, const Verdict& verdict) {
  std::vector<Advice> all;
  const QuantizationReport* now = Find(report.quantization, verdict);
  if (!IsAlarm(verdict.state) || now == nullptr) return all;
  AddAverages(report, verdict, all);
  AddStop(verdict, *now, all);
  AddRaisedLayers(report, verdict, *now, all);
  AddQuantizer(report, verdict, *now, all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Advice& a, const Advice& b) { return Gain(a) > Gain(b); });
  if (verdict.state == VerdictState::kSpike) {
    Advice inspect = Named(AdviceAction::kInspectRun, verdict);
    inspect.text = StrFormat(
        "look at what changed at step %d (data, batch size, optimizer state, outlier weights): the "
        "learning rate does not explain it",
        verdict.onset_step.value_or(0));
    all.insert(all.begin(), std::move(inspect));
  }
  return all;
}

}  // namespace ptqwatch::internal
