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

absl::StatusOr<int64_t> DecoderMeter::Bytes(const std::string& folder) {
  PTQWATCH_ASSIGN_OR_RETURN(const auto reader, OpenReader(folder, config_));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, DecoderOf(*reader));
  const internal::CheckpointCost cost = internal::CostOf(decoder, data_, options_);
  const bool curvature = options_.curvature.enabled &&
                         (options_.max_bytes == 0 || cost.curvature_bytes <= options_.max_bytes);
  return curvature ? std::max(cost.bytes, cost.curvature_bytes) : cost.bytes;
}

absl::StatusOr<Report> DecoderMeter::Measure(
    absl::Span<const std::string> folders, bool losses_alone,
    const std::function<void(const internal::MeterProgress&)>& progress,
    const ExecutionContext& context) {
  losses_ = {};
  std::vector<std::unique_ptr<CheckpointReader>> readers;
  std::vector<AverageReader::Part> parts;
  for (const std::string& folder : folders) {
    PTQWATCH_ASSIGN_OR_RETURN(auto reader, OpenReader(folder, config_));
    parts.emplace_back(folder, reader.get());
    readers.push_back(std::move(reader));
  }
  const internal::ModelConfig& config = readers.back()->files().config();
  internal::CheckpointMeasurement options = options_;
  if (losses_alone) {
    options.curvature.enabled = false;
    options.noise_relative_norm = 0;
    options.loss_along = false;
  }
  options.progress = [&](const internal::MeasurementProgress& now) {
    if (progress) progress({.part = now.part, .done = now.done, .of = now.of});
  };
  if (readers.size() == 1) {
    PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, DecoderOf(*readers.front()));
    return internal::MeasureCheckpoint(decoder, data_, options, context, &losses_);
  }
  PTQWATCH_ASSIGN_OR_RETURN(const AverageReader mean, AverageReader::Create(std::move(parts)));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::Create(config, mean));
  return internal::MeasureCheckpoint(decoder, data_, options, context, &losses_);
}

}  // namespace ptqwatch::tools
