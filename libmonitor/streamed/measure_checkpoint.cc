#include "streamed/measure_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/assemble_report.h"
#include "probes/loss_pairs.h"
#include "probes/noise_probe.h"
#include "probes/prediction_check.h"
#include "probes/quantizer_report.h"
#include "streamed/block_quantizer.h"
#include "streamed/checkpoint_curvature.h"
#include "streamed/checkpoint_plan.h"
#include "streamed/checkpoint_tensors.h"
#include "streamed/noise_streams.h"
#include "streamed/stream_along.h"
#include "streamed/task_batches.h"
#include "streamed/token_stream.h"

namespace ptqwatch::internal {
namespace {

absl::Status IgnoreInput(size_t, const at::Tensor&) { return absl::OkStatus(); }

class CheckpointRun {
 public:
  CheckpointRun(const Decoder& decoder, const TrajectoryData& data,
                const CheckpointMeasurement& options, const ExecutionContext& context)
      : decoder_(decoder),
        data_(data),
        options_(options),
        context_(context),
        bytes_(BytesOf(decoder, data, options)),
        tasks_(BatchTasks(data.tasks, decoder.config().context)),
        quantizers_(options.quantizers.size()) {
    context_.seeds = SeedSource(options.seed);
  }

  absl::StatusOr<Report> Run();
  // The losses that Run has measured.
  CheckpointLosses ReleaseLosses();

 private:
  // The findings of a quantizer so far.
  struct Quantizer {
    absl::Status status;
    std::vector<QuantizedLayerRow> rows;
    std::vector<UnitLosses> losses;
    std::map<double, std::vector<UnitLosses>> along;  // by scale, if asked for
    std::vector<ItemScores> tasks;
    std::vector<NamedWeight> weights;  // only if they are kept
  };
  // The model with the weights of one quantizer, and tokens on their way through its blocks.
  struct Variant {
    std::optional<size_t> quantizer = {};  // nullopt: full precision
    double scale = 1;                      // of the quantization error in the weights
    // The probe's first, then one for each batch of tasks if the scale is 1.
    std::vector<TokenStream> streams = {};
  };

  // Quantizers [first, end), which go through the blocks together.
  struct Group {
    size_t first = 0;
    size_t end = 0;
  };

  absl::Status MeasureGroup(const Group& group);
  bool WithNoise(const Group& group) const {
    return group.first == 0 && options_.noise_relative_norm > 0;
  }
  absl::StatusOr<std::vector<Variant>> EmbedTokens(const Group& group);
  absl::Status PassBlock(int64_t index, const Group& group, TokenStream& calibration,
                         std::vector<Variant>& variants, std::optional<NoiseStreams>& noise);
  void AddAccumulatedError(const Variant& variant, const Variant& full, size_t linears);
  // Adds the bytes of the weights to `held`.
  absl::StatusOr<std::vector<QuantizedBlock>> Quantize(const DecoderBlock& block,
                                                       const std::vector<DecoderLinear>& linears,
                                                       const Group& group, TokenStream& calibration,
                                                       Reservation& held);
  absl::Status TakeLosses(const std::vector<Variant>& variants,
                          const std::optional<NoiseStreams>& noise);
  absl::Status TakeLosses(const Variant& variant, const DecoderHead& head);
  absl::Status ScoreTasksOf(const Variant& variant, const DecoderHead& head);
  ProbeResult Compare();
  absl::Status Compare(const Quantizer& quantizer, QuantizationReport& report) const;
  ProbeResult CompareNoisy() const;
  std::optional<ProbeResult> MeasureCurvature(ProbeResult& quantization);
  std::string CostName(const Variant& variant) const;
  void ReportProgress(std::string_view part, int64_t done, int64_t of) const {
    if (options_.progress) options_.progress({.part = part, .done = done, .of = of});
  }

  const Decoder& decoder_;
  const TrajectoryData& data_;
  const CheckpointMeasurement& options_;
  ExecutionContext context_;
  const CheckpointBytes bytes_;
  const std::vector<TaskBatch> tasks_;
  CheckpointLayout layout_;
  HostBackend backend_;
  std::vector<Quantizer> quantizers_;
  std::vector<UnitLosses> full_;
  std::vector<UnitLosses> noisy_;
  std::vector<ItemScores> full_tasks_;
  TaskScores task_scores_;             // of full precision
  std::shared_ptr<Reservation> kept_;  // memory of the quantized weights, if they are kept
  int64_t blocks_done_ = 0;
  int64_t blocks_to_do_ = 0;
  std::map<std::string, double> seconds_;
};

std::string CheckpointRun::CostName(const Variant& variant) const {
  return variant.quantizer ? ShortName(KeyOf(options_.quantizers[*variant.quantizer]))
                           : "probe_loss";
}

absl::StatusOr<Report> CheckpointRun::Run() {
  PTQWATCH_ASSIGN_OR_RETURN(layout_, LayOut(bytes_, options_, context_.bytes->remaining()));
  const auto quantizers = std::ssize(quantizers_);
  if (layout_.keep_quantized) {
    kept_ = std::make_shared<Reservation>(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(kept_->Take(quantizers * bytes_.covered, "the quantized weights"));
  }
  Stopwatch watch(context_.clock);
  ReportHeader header;
  {
    Reservation held(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(held.Take(bytes_.tensor, "reading a tensor"));
    PTQWATCH_ASSIGN_OR_RETURN(header.snapshot_digest, DigestOfTensors(decoder_, context_));
  }
  seconds_["digest"] = watch.Lap();
  const int64_t together = layout_.together;
  blocks_to_do_ = (quantizers + together - 1) / together * decoder_.blocks();
  for (int64_t first = 0; first < quantizers; first += together) {
    PTQWATCH_RETURN_IF_ERROR(
        MeasureGroup({.first = static_cast<size_t>(first),
                      .end = static_cast<size_t>(std::min(quantizers, first + together))}));
  }
  std::vector<ProbeResult> results;
  results.push_back(Compare());
  if (options_.noise_relative_norm > 0) results.push_back(CompareNoisy());
  if (std::optional<ProbeResult> measured = MeasureCurvature(results[0])) {
    PTQWATCH_RETURN_IF_ERROR(context_.Checkpoint());
    results.push_back(*std::move(measured));
  }
  Report report = AssembleReport(header, results);
  report.learning_rate.reset();
  report.cost.erase("stall");
  report.tasks = std::move(task_scores_.tasks);
  return report;
}

CheckpointLosses CheckpointRun::ReleaseLosses() {
  CheckpointLosses losses{.full = std::move(full_)};
  for (Quantizer& quantizer : quantizers_) {
    if (quantizer.status.ok()) {
      losses.quantized.push_back(std::move(quantizer.losses));
    } else {
      losses.quantized.emplace_back();
    }
  }
  return losses;
}

absl::StatusOr<std::vector<CheckpointRun::Variant>> CheckpointRun::EmbedTokens(const Group& group) {
  std::vector<Variant> variants;
  const auto add = [&](std::optional<size_t> quantizer, double scale = 1) {
    Variant variant{.quantizer = quantizer, .scale = scale};
    for (size_t i = 0; i <= (scale == 1 ? tasks_.size() : 0); ++i) {
      const at::Tensor& tokens = i == 0 ? data_.probe : tasks_[i - 1].tokens;
      absl::StatusOr<TokenStream> stream = variants.empty()
                                               ? TokenStream::Embed(decoder_, tokens, context_)
                                               : variants[0].streams[i].Copy(context_);
      if (!stream.ok()) return stream.status();
      variant.streams.push_back(*std::move(stream));
    }
    variants.push_back(std::move(variant));
    return absl::OkStatus();
  };
  PTQWATCH_RETURN_IF_ERROR(add(std::nullopt));
  for (size_t i = group.first; i < group.end; ++i) {
    PTQWATCH_RETURN_IF_ERROR(add(i));
    if (!options_.loss_along) continue;
    for (const double scale : kStreamScales) PTQWATCH_RETURN_IF_ERROR(add(i, scale));
  }
  // Later groups only need the hidden states of the probe in full precision.
  std::vector<TokenStream>& full = variants[0].streams;
  if (group.first > 0) full.erase(full.begin() + 1, full.end());
  return variants;
}

absl::Status CheckpointRun::MeasureGroup(const Group& group) {
  Stopwatch watch(context_.clock);
  std::optional<TokenStream> calibration;
  PTQWATCH_ASSIGN_OR_RETURN(calibration, TokenStream::Embed(decoder_, data_.calibration, context_));
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<Variant> variants, EmbedTokens(group));
  std::optional<NoiseStreams> noise;
  if (WithNoise(group)) {
    PTQWATCH_ASSIGN_OR_RETURN(
        noise, NoiseStreams::Begin(variants[0].streams[0], options_.noise_relative_norm, context_));
  }
  seconds_["read"] += watch.Lap();
  for (int64_t block = 0; block < decoder_.blocks(); ++block) {
    PTQWATCH_RETURN_IF_ERROR(PassBlock(block, group, *calibration, variants, noise));
    ReportProgress("block", ++blocks_done_, blocks_to_do_);
  }
  calibration.reset();
  if (group.first > 0) variants.erase(variants.begin());
  return TakeLosses(variants, noise);
}

absl::Status CheckpointRun::PassBlock(int64_t index, const Group& group, TokenStream& calibration,
                                      std::vector<Variant>& variants,
                                      std::optional<NoiseStreams>& noise) {
  Stopwatch watch(context_.clock);
  Reservation held(context_.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(bytes_.block + bytes_.reading, "a block"));
  PTQWATCH_ASSIGN_OR_RETURN(const DecoderBlock block, decoder_.ReadBlock(index));
  held.Return(bytes_.reading);
  seconds_["read"] += watch.Lap();
  const std::vector<DecoderLinear> linears = decoder_.LinearsOf(index);
  if (noise) {
    Reservation noisy(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(noisy.Take(bytes_.quantized + std::max(bytes_.forward, bytes_.drawing),
                                        "a block with noise"));
    PTQWATCH_RETURN_IF_ERROR(noise->PassThrough(block, linears, context_));
    seconds_["noise"] += watch.Lap();
  }
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<QuantizedBlock> quantized,
                            Quantize(block, linears, group, calibration, held));
  watch.Lap();
  PTQWATCH_RETURN_IF_ERROR(held.Take(bytes_.forward + bytes_.between, "computing a block"));
  for (Variant& variant : variants) {
    const QuantizedBlock* own =
        variant.quantizer ? &quantized[*variant.quantizer - group.first] : nullptr;
    if (own != nullptr && !own->status.ok()) continue;
    const std::vector<at::Tensor> weights =
        own == nullptr       ? block.weights()
        : variant.scale == 1 ? own->weights
                             : WeightsAlong(block.weights(), own->weights, variant.scale);
    for (TokenStream& stream : variant.streams) {
      PTQWATCH_RETURN_IF_ERROR(stream.PassThrough(block, weights, IgnoreInput, context_));
    }
    const bool quantizing = own != nullptr && variant.scale == 1;
    seconds_[CostName(variant)] += watch.Lap() + (quantizing ? own->seconds : 0);
  }
  for (const Variant& variant : variants) AddAccumulatedError(variant, variants[0], linears.size());
  // A quantizer that failed goes no further.
  const auto failed = [this](const Variant& variant) {
    return variant.quantizer && !quantizers_[*variant.quantizer].status.ok();
  };
  variants.erase(std::remove_if(variants.begin(), variants.end(), failed), variants.end());
  return absl::OkStatus();
}

// Fills the rows of the block just passed, whose linears are the newest.
void CheckpointRun::AddAccumulatedError(const Variant& variant, const Variant& full,
                                        size_t linears) {
  if (!variant.quantizer || variant.scale != 1) return;
  Quantizer& quantizer = quantizers_[*variant.quantizer];
  if (!quantizer.status.ok()) return;
  const double ratio = variant.streams[0].SquaredErrorRatio(full.streams[0]);
  if (!std::isfinite(ratio)) return;
  for (auto row = quantizer.rows.end() - static_cast<std::ptrdiff_t>(linears);
       row != quantizer.rows.end(); ++row) {
    row->report.accumulated_error_ratio = ratio;
  }
}

absl::StatusOr<std::vector<QuantizedBlock>> CheckpointRun::Quantize(
    const DecoderBlock& block, const std::vector<DecoderLinear>& linears, const Group& group,
    TokenStream& calibration, Reservation& held) {
  Stopwatch watch(context_.clock);
  const auto specs =
      absl::MakeConstSpan(options_.quantizers).subspan(group.first, group.end - group.first);
  std::vector<QuantizedBlock> quantized(specs.size(), QuantizedBlock(block));
  for (const LinearRange& range : DivideByGrams(linears, layout_.grams)) {
    watch.Lap();
    Reservation sums(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(sums.Take(layout_.grams, "the Gram matrices of a block"));
    PTQWATCH_RETURN_IF_ERROR(held.Take(bytes_.forward, "computing a block"));
    PTQWATCH_ASSIGN_OR_RETURN(const BlockGrams grams,
                              CaptureBlock(block, linears, range, calibration, backend_, context_));
    held.Return(bytes_.forward);
    seconds_["capture"] += watch.Lap();
    if (range.first == 0) {
      PTQWATCH_RETURN_IF_ERROR(
          held.Take(std::ssize(specs) * bytes_.quantized, "the quantized weights of a block"));
    }
    PTQWATCH_RETURN_IF_ERROR(QuantizeLinears(block, linears, grams, specs, options_.overrides,
                                             backend_, context_, quantized,
                                             options_.artifact_size));
  }
  for (size_t i = 0; i < quantized.size(); ++i) {
    QuantizedBlock& result = quantized[i];
    Quantizer& quantizer = quantizers_[group.first + i];
    quantizer.status.Update(result.status);
    std::move(result.rows.begin(), result.rows.end(), std::back_inserter(quantizer.rows));
    for (size_t linear = 0; layout_.keep_quantized && linear < linears.size(); ++linear) {
      if (result.weights[linear].is_same(block.weights()[linear])) continue;
      quantizer.weights.push_back(
          {linears[linear].name, AsStored(linears[linear], result.weights[linear])});
    }
  }
  return quantized;
}

absl::Status CheckpointRun::TakeLosses(const std::vector<Variant>& variants,
                                       const std::optional<NoiseStreams>& noise) {
  Stopwatch watch(context_.clock);
  Reservation held(context_.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(bytes_.head, "the output head"));
  PTQWATCH_ASSIGN_OR_RETURN(const DecoderHead head, decoder_.ReadHead());
  seconds_["read"] += watch.Lap();
  for (size_t i = 0; i < variants.size(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(TakeLosses(variants[i], head));
    seconds_[CostName(variants[i])] += watch.Lap();
    ReportProgress("head", static_cast<int64_t>(i) + 1, std::ssize(variants));
  }
  if (noise) {
    PTQWATCH_ASSIGN_OR_RETURN(noisy_, noise->Losses(head, context_));
    seconds_["noise"] += watch.Lap();
  }
  return absl::OkStatus();
}

absl::Status CheckpointRun::TakeLosses(const Variant& variant, const DecoderHead& head) {
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<UnitLosses> losses,
                            variant.streams[0].Losses(head, context_));
  if (!variant.quantizer && !std::all_of(losses.begin(), losses.end(), IsFinite)) {
    return absl::DataLossError("the full-precision loss is not finite, but all weights are");
  }
  if (variant.quantizer && options_.loss_along) {
    quantizers_[*variant.quantizer].along[variant.scale] = losses;
  }
  if (variant.scale != 1) return absl::OkStatus();
  (variant.quantizer ? quantizers_[*variant.quantizer].losses : full_) = std::move(losses);
  return ScoreTasksOf(variant, head);
}

absl::Status CheckpointRun::ScoreTasksOf(const Variant& variant, const DecoderHead& head) {
  absl::StatusOr<std::vector<ItemScores>> scores =
      ScoreChoices(data_.tasks, tasks_, absl::MakeConstSpan(variant.streams).subspan(1), decoder_,
                   head, context_);
  if (variant.quantizer && absl::IsDataLoss(scores.status())) {
    quantizers_[*variant.quantizer].status = scores.status();
    return absl::OkStatus();
  }
  if (!scores.ok()) return scores.status();
  (variant.quantizer ? quantizers_[*variant.quantizer].tasks : full_tasks_) = *std::move(scores);
  return absl::OkStatus();
}

ProbeResult CheckpointRun::Compare() {
  QuantizationResult result;
  result.status = ProbeStatus::kOk;
  result.calibration_mode = CalibrationMode::kOneShot;
  result.skipped_layers = SkippedTensors(decoder_);
  SumUp(full_, result);
  if (!data_.tasks.empty()) {
    task_scores_ = ScoreTasks(data_.tasks, full_tasks_);
    result.accuracy_ratio = task_scores_.accuracy_ratio;
    result.accuracy_stderr = task_scores_.accuracy_stderr;
  }
  for (size_t i = 0; i < quantizers_.size(); ++i) {
    Quantizer& quantizer = quantizers_[i];
    QuantizationReport& report = result.quantizers.emplace_back(ReportOf(options_.quantizers[i]));
    absl::Status status = quantizer.status;
    if (status.ok()) status = AddRows(std::move(quantizer.rows), decoder_.parameters(), report);
    if (status.ok()) status = Compare(quantizer, report);
    SetStatus(status, report);
    quantizer.status = status;
  }
  result.held = std::move(kept_);
  return {.outcome = {"quantization"}, .cost_seconds = seconds_, .value = std::move(result)};
}

absl::Status CheckpointRun::Compare(const Quantizer& quantizer, QuantizationReport& report) const {
  LossPairs pairs;
  for (size_t batch = 0; batch < full_.size(); ++batch) {
    PTQWATCH_RETURN_IF_ERROR(pairs.Add(full_[batch], quantizer.losses[batch]));
  }
  PTQWATCH_RETURN_IF_ERROR(pairs.FillIn(report));
  if (!quantizer.along.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(report.loss_along, CompareAlong(full_, quantizer.along));
    report.beyond_quadratic_scale = BeyondQuadratic(report.loss_along);
    report.critical_sharpness = SharpnessAlong(report.loss_along, *report.displacement_norm);
  }
  if (data_.tasks.empty()) return absl::OkStatus();
  TaskScores scores = CompareTasks(data_.tasks, full_tasks_, quantizer.tasks);
  report.accuracy_ratio = scores.accuracy_ratio;
  report.accuracy_degradation_ratio = scores.degradation_ratio;
  report.accuracy_degradation_stderr = scores.degradation_stderr;
  report.tasks = std::move(scores.tasks);
  return absl::OkStatus();
}

ProbeResult CheckpointRun::CompareNoisy() const {
  return {
      .outcome = {std::string(NoiseProbe::kName)},
      .value = NoiseResult{.report = CompareNoise(options_.noise_relative_norm, full_, noisy_)}};
}

std::optional<ProbeResult> CheckpointRun::MeasureCurvature(ProbeResult& quantization) {
  if (!options_.curvature.enabled) return std::nullopt;
  if (!layout_.curvature) {
    return NoCurvature(
        options_.curvature, ProbeStatus::kDisabled,
        StrCat("the whole model is not in memory: curvature needs about ", bytes_.curvature,
               " bytes, max_bytes allows ", context_.bytes->remaining()));
  }
  ReportProgress("curvature", 0, 1);
  std::vector<std::vector<NamedWeight>> weights;
  for (Quantizer& quantizer : quantizers_) {
    std::vector<NamedWeight> own = std::exchange(quantizer.weights, {});
    weights.push_back(quantizer.status.ok() ? std::move(own) : std::vector<NamedWeight>());
  }
  if (!layout_.keep_quantized) {
    for (QuantizationReport& report : std::get<QuantizationResult>(quantization.value).quantizers) {
      if (report.status != ProbeStatus::kOk) continue;
      report.status_detail = StrCat("no curvature along its error: the weights of ",
                                    quantizers_.size(), " quantizers do not fit within max_bytes");
    }
  }
  ProbeResult measured =
      MeasureCheckpointCurvature(decoder_, TokenBatches(data_.probe), options_.curvature,
                                 std::move(weights), quantization, context_);
  ReportProgress("curvature", 1, 1);
  return measured;
}

absl::StatusOr<Report> MeasureOrThrow(const Decoder& decoder, const TrajectoryData& data,
                                      const CheckpointMeasurement& options,
                                      const ExecutionContext& context, CheckpointLosses* losses) {
  PTQWATCH_RETURN_IF_ERROR(CheckMeasurement(decoder, data, options));
  ExecutionContext on_host = context;
  if (context.host_bytes != nullptr) on_host.bytes = context.host_bytes;
  ByteBudget& budget = *on_host.bytes;
  const int64_t before = budget.limit();
  budget.SetLimit(budget.used() + std::min(BytesAllowed(options.max_bytes), budget.remaining()));
  absl::StatusOr<Report> report = Guard([&] {
    CheckpointRun run(decoder, data, options, on_host);
    absl::StatusOr<Report> measured = run.Run();
    if (losses != nullptr && measured.ok()) *losses = run.ReleaseLosses();
    return measured;
  });
  budget.SetLimit(before);
  return report;
}

}  // namespace

absl::StatusOr<Report> MeasureCheckpoint(const Decoder& decoder, const TrajectoryData& data,
                                         const CheckpointMeasurement& options,
                                         const ExecutionContext& context,
                                         CheckpointLosses* losses) {
  return Guard([&] { return MeasureOrThrow(decoder, data, options, context, losses); });
}

}  // namespace ptqwatch::internal
