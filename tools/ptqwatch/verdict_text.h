#ifndef PTQWATCH_TOOLS_PTQWATCH_VERDICT_TEXT_H_
#define PTQWATCH_TOOLS_PTQWATCH_VERDICT_TEXT_H_

#include <string>

#include "ptqwatch/report.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// The verdict as lines `name value`: state, severity, evidence, effect of the decay so far,
/// advice. Omits lines without numbers.
std::string VerdictBlock(const Verdict& verdict, TextStyle style);

/// "+0.112 nats (0.080 to 0.140), 1.9 times the baseline (1.6 to 2.2)"; unknown parts are omitted.
std::string SeverityText(const Verdict& verdict);

/// A line for each average of snapshots: "average    of 6 snapshots: loss 1.6600, gptq3 E 3.90%".
/// After several averages, a line names the best ones.
std::string AveragingBlock(const Report& report, TextStyle style);

/// A line for each choice of layers at more bits: "mixed      gptq3, 1 layer at 4 bits: 0.158 ->
/// 0.112 nats".
std::string MixedPrecisionBlock(const Report& report, TextStyle style);

/// The loss under noise: "noise      +0.031±0.002 nats, noise of 10% of the norm of each weight".
/// Empty if it is switched off.
std::string NoiseBlock(const Report& report, TextStyle style);

/// The loss increase on all sets of probe batches: "pooled     gptq3 E 10.95±0.28%, 0.173±0.004
/// nats on 262144 tokens of 4 sets". Empty without further sets.
std::string PooledBlock(const Report& report, TextStyle style);

/// The predicted end of the planned decay: "predicted  decay of 3200 steps, from step 8000: loss
/// 1.580, gptq3 E 8.8% (7.1 to 10.9)". Empty if no shadow cooldown has ended.
std::string PredictionBlock(const Report& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_VERDICT_TEXT_H_
