#include "decoder_meter.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "models/checkpoint_files.h"
#include "models/checkpoint_reader.h"
#include "models/decoder.h"
#include "streamed/average_reader.h"

namespace ptqwatch::tools {
namespace {

using internal::AverageReader;
using internal::CheckpointFiles;
using internal::CheckpointReader;
using internal::Decoder;

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenReader(const std::string& folder,
                                                             const std::string& config) {
  PTQWATCH_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(folder, config));
  return std::make_unique<CheckpointReader>(std::move(files));
}

// DataLoss, for a later look, if the shards of ranks do not give the model's shapes: no file says
// how many shards there are.
absl::StatusOr<Decoder> DecoderOf(const CheckpointReader& reader) {
  absl::StatusOr<Decoder> decoder = Decoder::Create(reader.files().config(), reader);
  if (decoder.ok() || !reader.files().sharded()) return decoder;
  return absl::DataLossError(
      internal::StrCat(decoder.status(), "; a shard of a rank may be missing"));
}

// The readers of a checkpoint's folder or, if there are several, of their mean.
struct Opened {
  std::vector<std::unique_ptr<CheckpointReader>> readers = {};
  std::unique_ptr<const AverageReader> mean = {};

  absl::StatusOr<Decoder> decoder() const {
    if (mean == nullptr) return DecoderOf(*readers.front());
    return Decoder::Create(readers.back()->files().config(), *mean);
  }
};

absl::StatusOr<Opened> OpenAll(absl::Span<const std::string> folders, const std::string& config) {
  Opened opened;
  std::vector<AverageReader::Part> parts;
  for (const std::string& folder : folders) {
    PTQWATCH_ASSIGN_OR_RETURN(auto reader, OpenReader(folder, config));
    parts.emplace_back(folder, reader.get());
    opened.readers.push_back(std::move(reader));
  }
  if (folders.size() == 1) return opened;
  PTQWATCH_ASSIGN_OR_RETURN(AverageReader mean, AverageReader::Create(std::move(parts)));
  opened.mean = std::make_unique<const AverageReader>(std::move(mean));
  return opened;
}

std::string ArchitectureOf(const internal::ModelConfig& config) {
  std::string inside = internal::StrCat(config.intermediate);
  if (config.mixture) {
    inside = internal::StrFormat("%d of %d experts of %d", config.mixture->chosen,
                                 config.mixture->experts, config.mixture->intermediate);
  }
  return internal::StrFormat(
      "%s, %d blocks of %d, %d heads of %d (%d of keys), %s inside, "
      "vocabulary %d",
      config.model_type, config.blocks, config.hidden, config.heads, config.head_dim,
      config.key_heads, inside, config.vocabulary);
}

}  // namespace

absl::StatusOr<internal::ModelFacts> DecoderMeter::Facts(const std::string& folder) {
  PTQWATCH_ASSIGN_OR_RETURN(const auto reader, OpenReader(folder, config_));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, DecoderOf(*reader));
  internal::ModelFacts facts{.architecture = ArchitectureOf(decoder.config()),
                             .vocabulary = decoder.config().vocabulary,
                             .context = decoder.config().context,
                             .parameters = decoder.parameters()};
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    for (const internal::DecoderLinear& linear : decoder.LinearsOf(block)) {
      facts.covered_parameters += linear.outputs * linear.inputs;
    }
  }
  return facts;
}

internal::CheckpointMeasurement DecoderMeter::OptionsFor(bool losses_alone) const {
  internal::CheckpointMeasurement options = options_;
  if (losses_alone) {
    options.curvature.enabled = false;
    options.noise_relative_norm = 0;
    options.loss_along = false;
  }
  return options;
}

absl::StatusOr<int64_t> DecoderMeter::Bytes(absl::Span<const std::string> folders,
                                            bool losses_alone) {
  PTQWATCH_ASSIGN_OR_RETURN(const Opened opened, OpenAll(folders, config_));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, opened.decoder());
  const internal::CheckpointMeasurement options = OptionsFor(losses_alone);
  const internal::CheckpointCost cost = internal::CostOf(decoder, data_, options);
  const bool curvature = options.curvature.enabled &&
                         (options.max_bytes == 0 || cost.curvature_bytes <= options.max_bytes);
  return curvature ? std::max(cost.bytes, cost.curvature_bytes) : cost.bytes;
}

absl::StatusOr<Report> DecoderMeter::Measure(
    absl::Span<const std::string> folders, bool losses_alone,
    const std::function<void(const internal::MeterProgress&)>& progress,
    const ExecutionContext& context) {
  losses_ = {};
  PTQWATCH_ASSIGN_OR_RETURN(const Opened opened, OpenAll(folders, config_));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, opened.decoder());
  internal::CheckpointMeasurement options = OptionsFor(losses_alone);
  options.progress = [&](const internal::MeasurementProgress& now) {
    if (progress) progress({.part = now.part, .done = now.done, .of = now.of});
  };
  return internal::MeasureCheckpoint(decoder, data_, options, context, &losses_);
}

}  // namespace ptqwatch::tools
