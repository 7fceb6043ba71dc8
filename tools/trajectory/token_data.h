#ifndef PTQWATCH_TOOLS_TRAJECTORY_TOKEN_DATA_H_
#define PTQWATCH_TOOLS_TRAJECTORY_TOKEN_DATA_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "decoder_meter.h"
#include "flags.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/token_file.h"

namespace ptqwatch::tools {

/// The tokens of --probe and --calibration.
struct TokenData {
  internal::TokenSequences probe;
  internal::TokenSequences calibration;
};

/// Errors name the option and the file.
absl::StatusOr<TokenData> ReadTokenData(const Flags& flags);

/// InvalidArgument, naming the option and its value, unless a model can be measured with `tokens`.
absl::Status CheckTokenData(const Flags& flags, const TokenData& tokens,
                            const internal::ModelFacts& facts);

/// The measurement that the options ask for.
internal::CheckpointMeasurement MeasurementOf(const Flags& flags);
std::unique_ptr<DecoderMeter> MakeMeter(const Flags& flags, const TokenData& tokens);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_TOKEN_DATA_H_
