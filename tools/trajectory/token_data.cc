#include "token_data.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ATen/ops/empty.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::tools {
namespace {

absl::Status AboutOption(std::string_view option, const absl::Status& status) {
  return absl::Status(status.code(), internal::StrCat(option, ": ", status));
}

absl::StatusOr<internal::TokenSequences> ReadTokens(std::string_view option,
                                                    const std::string& path, int64_t sequences,
                                                    const Flags& flags) {
  absl::StatusOr<internal::TokenSequences> tokens = internal::ReadTokenFile(
      path, {.length = flags.length, .sequences = sequences, .raw_bytes = flags.token_bytes});
  if (!tokens.ok()) return AboutOption(option, tokens.status());
  return tokens;
}

// int64 [sequences, N + 1].
at::Tensor TensorOf(const internal::TokenSequences& sequences) {
  at::Tensor tensor = at::empty({sequences.sequences(), sequences.length + 1}, at::kLong);
  std::copy(sequences.tokens.begin(), sequences.tokens.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

absl::StatusOr<TokenData> ReadTokenData(const Flags& flags) {
  TokenData tokens;
  PTQWATCH_ASSIGN_OR_RETURN(tokens.probe,
                            ReadTokens("--probe", flags.probe, flags.probe_sequences, flags));
  PTQWATCH_ASSIGN_OR_RETURN(tokens.calibration, ReadTokens("--calibration", flags.calibration,
                                                           flags.calibration_sequences, flags));
  return tokens;
}

absl::Status CheckTokenData(const Flags& flags, const TokenData& tokens,
                            const internal::ModelFacts& facts) {
  if (flags.length > facts.context) {
    return absl::InvalidArgumentError(internal::StrCat(
        "--length: ", flags.length, " is more than the model's longest sequence, ", facts.context));
  }
  absl::Status fits = internal::CheckVocabulary(tokens.probe, facts.vocabulary, flags.probe);
  if (!fits.ok()) return AboutOption("--probe", fits);
  fits = internal::CheckVocabulary(tokens.calibration, facts.vocabulary, flags.calibration);
  return fits.ok() ? fits : AboutOption("--calibration", fits);
}

internal::CheckpointMeasurement MeasurementOf(const Flags& flags) {
  internal::CheckpointMeasurement measurement{.quantizers = flags.quantizers,
                                              .overrides = flags.overrides};
  measurement.curvature.enabled = flags.curvature;
  measurement.noise_relative_norm = flags.noise;
  measurement.loss_along = flags.loss_along;
  measurement.artifact_size = flags.artifact_size;
  measurement.max_bytes = flags.max_bytes;
  measurement.seed = flags.seed;
  return measurement;
}

std::unique_ptr<DecoderMeter> MakeMeter(const Flags& flags, const TokenData& tokens) {
  internal::TrajectoryData data{.probe = TensorOf(tokens.probe),
                                .calibration = TensorOf(tokens.calibration)};
  return std::make_unique<DecoderMeter>(std::move(data), MeasurementOf(flags), flags.config);
}

}  // namespace ptqwatch::tools
