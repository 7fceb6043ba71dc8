#ifndef PTQWATCH_OPTIONS_H_
#define PTQWATCH_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/process_options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch {

/// Selects the weights to quantize. Patterns are globs over canonical parameter names: '*' matches
/// any run of characters, '?' one character.
struct LayerSelection {
  /// A parameter must match one of these. Empty: every parameter matches.
  std::vector<std::string> include = {};
  /// A parameter must match none of these. Never quantized, whatever the patterns: parameters that
  /// are neither factors of a product nor embeddings (norms, biases). Monitor::Describe lists all
  /// parameters that are left out, with the reasons.
  std::vector<std::string> exclude = {};
  /// Also quantize the output head: the last product of the forward pass. If it is tied to an
  /// embedding, both read the quantized matrix, as they do in the file that is deployed; its
  /// statistics are those of the head's inputs.
  bool output_head = false;
  /// Also quantize routers: matrices with fewer outputs than inputs whose output goes into a top-k,
  /// as that which chooses a token's experts. Published models keep them in full precision.
  bool routers = false;
  /// Also quantize embeddings: matrices of which rows are looked up. One that is multiplied too has
  /// the statistics of its products, and if that is the output head, it takes `output_head`. For
  /// any other all entries count alike, so that GPTQ and AWQ round it to nearest, and so do the
  /// losses of the layer: they do not know how often a row is looked up. The loss of the model
  /// does.
  bool embeddings = false;
};

/// How to measure the loss surface on the subject's curvature batches: the top eigenvalue and the
/// trace of the Hessian, and the second-order prediction of each quantizer's loss change.
/// Estimators stop at the precision set here or at a cap (CurvatureEngineOptions).
struct CurvatureOptions {
  bool enabled = true;  ///< whether a monitor measures curvature
  CurvatureScope scope = CurvatureScope::kQuantizedWeights;
  /// With kNamedParameters: globs over canonical parameter names ('*' matches any run of
  /// characters, '?' one). A parameter that matches one of them is in the scope.
  std::vector<std::string> parameters = {};
  /// The search for an eigenvalue stops when ||Hv - lambda v|| <= this * |lambda|.
  double eigenvalue_residual_ratio = 0.02;
  /// Number of largest eigenvalues to search for, one after the other.
  int top_eigenvalues = 1;
  /// Also search for the smallest (most negative) eigenvalue. Costs about as much as the largest.
  bool bottom_eigenvalue = false;
  /// The estimate of the trace stops when its standard error is this share of the trace.
  double trace_relative_stderr = 0.1;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CurvatureOptions& options);

/// When snapshots are due: every `every` steps, or in one of two other ways. A trainer may skip
/// steps: if several snapshots fall due in between, one is taken at the next reported step.
///
/// With `every` and `log_spaced_per_decade`, due steps depend only on step numbers and learning
/// rates, so a resumed run has the same ones.
struct ScheduleOptions {
  /// Snapshots are due at steps divisible by this.
  int64_t every = 1000;
  /// If positive, replaces `every`: snapshots are due at multiples of this many seconds after the
  /// first step. Depends on the clock, so another run has other due steps.
  double every_seconds = 0;
  /// If positive, replaces `every`: this many snapshots between a step and ten times that step,
  /// evenly spaced on a logarithmic scale. 4 gives steps 1, 2, 4, 6, 10, 18, 32, 57, 100, ...
  int64_t log_spaced_per_decade = 0;
  /// Multiplies the number of due snapshots while the learning rate decays (LrPhase::kDecay). The
  /// additional ones use spare time only: they are taken if the monitor is idle and expects to
  /// finish before the next regular one is due. Otherwise they are dropped and not counted as
  /// skipped. 1: no additional snapshots.
  int64_t decay_density = 4;
};

/// How to average the last snapshots. The average is evaluated at full precision and quantized by
/// the watched quantizer (Verdict::method), at snapshots that measure curvature. If the run has
/// quantizers of 3 and of 4 bits, the cheapest one of the other width quantizes it too.
struct AveragingOptions {
  bool enabled = true;
  /// Number of snapshots in the mean (LAWA, arXiv 2209.14981); 2 to 64. Each holds a copy of the
  /// parameters. If max_bytes is too small for all of them, fewer are averaged and the report gives
  /// their number.
  int64_t window = 6;
  /// Only every `spacing`-th snapshot enters the averages.
  int64_t spacing = 1;
  /// Also computes m = decay m + (1 - decay) w over the same snapshots; in (0, 1). 0: off.
  double decay = 0;
  /// Also measures merges of the same snapshots, which emulate decays of the learning rate
  /// (AveragingKind::kMerge): of every DecayShape over the whole window, half and a quarter of it,
  /// at least three snapshots each. Each costs as much as the mean. As many are measured as fit in
  /// the time that everything else leaves (Plan::merges); none if there is no time.
  bool merges = true;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const AveragingOptions& options);

/// Returns {1/8, 1/4, 1/2}.
PTQWATCH_EXPORT std::vector<double> DefaultCooldownLengths();

/// Shadow cooldowns predict the cost of quantization at the end of a learning-rate decay that has
/// not begun. A copy of the model is trained from a snapshot through shorter decays, on the
/// subject's own batches (train_step of its options). Cooldowns use the time that snapshots leave,
/// and pause while a snapshot is measured.
struct CooldownOptions {
  /// Optimizer steps of the planned decay. 0: each request for a cooldown gives its own.
  int64_t decay_steps = 0;
  DecayShape shape = DecayShape::kLinear;
  double final_ratio = 0;  ///< last rate divided by the first, in [0, 1)
  /// Lengths of the simulated decays as shares of `decay_steps`, in (0, 1], ascending. The result
  /// of the whole decay is extrapolated; more steps make it more reliable. The defaults add up to
  /// 7/8 of the steps of the whole decay.
  std::vector<double> lengths = DefaultCooldownLengths();
  /// Before each simulated decay, the copy is trained at the full rate for this many steps, or for
  /// the length of that decay if it is shorter, because its optimizer starts without moments.
  int64_t settle_steps = 100;
  /// Runs a cooldown at every n-th snapshot of the plateau; needs `decay_steps`. 0: only on request
  /// (Control).
  int64_t every_snapshots = 0;
  /// Wall-clock cap of a cooldown. Measurements cut short get the status out_of_time. Zero: no cap.
  std::chrono::milliseconds max_time{0};
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CooldownOptions& options);

/// With MonitorOptions::monitor_device = "auto", a model on a GPU with more parameters is measured
/// on the GPU, because a snapshot would take minutes on a CPU core.
inline constexpr int64_t kMostParametersOnCpu = 100'000'000;

struct MonitorOptions {
  /// By default training starts even if the monitor fails. The log, Monitor::status(), the
  /// exporters that could be started and, if it is writable, the journal give the reason.
  OnFailure on_failure = OnFailure::kInert;

  ScheduleOptions schedule = {};

  /// Quantizers to try on every snapshot; at least one.
  std::vector<QuantizerSpec> quantizers = DefaultQuantizers();
  /// {glob, spec, of}: matching layers use `spec` instead, in every entry of `quantizers` named
  /// `of` or, if `of` is empty, with the method, bits and format of `spec` (KeyOf). The first match
  /// wins. Reports keep the entry's name: with {"*.mlp.*", {.bits = 5}, "gptq6"}, gptq6 has 5 bits
  /// there.
  std::vector<SpecOverride> overrides = {};
  LayerSelection layers = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  /// Maximum bytes of Gram matrices held at a time. The matrix of a layer with d inputs takes 8 d^2
  /// bytes: 1 GiB is enough for 11,585 inputs. If all of them together need more, the calibration
  /// data runs through the model several times, with the same result. A layer whose own Gram matrix
  /// needs more is skipped and reported.
  int64_t max_gram_bytes = int64_t{1} << 30;

  /// How to measure the loss surface, in addition to the quantization error. The engine chooses its
  /// own method; if it cannot work on this model, curvature is left out and every report says why.
  CurvatureOptions curvature = {};

  AveragingOptions averaging = {};
  /// Needs a subject that can train its replica; off otherwise.
  CooldownOptions cooldown = {};
  /// If `quantizers` has two bit-widths of one method: chooses the layers to keep at more bits by
  /// the curvature along the quantization error, and measures the result (Report::mixed_precision).
  bool mixed_precision = true;
  /// Measures the loss under Gaussian noise in the quantized weights (Report::noise), with this
  /// norm relative to each weight's. The default is about the relative error of rounding to 4 bits
  /// in groups of 128. Costs about as much as a quantizer. 0: off.
  double noise_relative_norm = 0.1;
  /// Also measures how large the quantized model is once its codes are compressed: their entropy
  /// (LayerQuantization::entropy_bits) and the bytes of the whole (QuantizationReport::
  /// artifact_bytes). Counts the codes of every layer, in less than a nanosecond a weight; on a GPU
  /// also copies them to the host. Changes no other number.
  bool artifact_size = false;
  /// Bytes of text for each token of the probe batches, their mean. With it, losses are also shown
  /// in bits a byte, which compares models with different tokenizers. 0: unknown.
  double bytes_per_token = 0;

  /// Called on the monitor thread when the verdict becomes an alarm, or a different alarm, with the
  /// report that shows it. Do not touch the trainer from here without synchronization: set an
  /// atomic that the training loop reads. Exceptions are logged.
  std::function<void(const AnalyzedReport&)> on_alert = {};

  /// A loss comparison stops adding tokens when the paired standard error of the loss change is at
  /// most this share of the change ...
  double relative_stderr = 0.05;
  /// ... or this share of the loss, if the change is too small to matter ...
  double absolute_stderr_ratio = 0.0005;
  /// ... or when it has used this many tokens or all probe batches.
  int64_t max_probe_tokens = 65536;
  /// Measures the loss increase of the watched quantizer (Verdict::method) on this many further
  /// sets of probe batches, for a narrower error bar (Report::pooled). Cuts the subject's probe
  /// batches, in order, into 1 + this many sets of equal size; batches left over go to the first
  /// set, which alone serves all other measurements. A further set costs two forward passes over
  /// its batches, up to max_probe_tokens, and a trainer with further sets quantizes once more. With
  /// `ranks`, each rank measures some of the sets: those that have time to spare narrow the error
  /// bar. If the plan has no time for a rank's sets, they are left out, and the report says so. 0:
  /// off. Needs more probe batches than further sets.
  int64_t further_probe_sets = 0;
  /// Wall-clock cap of one snapshot. Measurements cut short have the status out_of_time and no
  /// value. With adapt_plan, plans take about half of it on average. Zero: no cap.
  std::chrono::milliseconds max_snapshot_time{0};
  /// A probe that fails this many times in a row is switched off for the rest of the run.
  int max_failures_in_a_row = 5;

  /// Seeds all random numbers; part of the fingerprint.
  uint64_t seed = 0;
  /// Share of its time that training may lose, in (0, 1]: to copies of the weights, to the
  /// monitor's work and to the CPU time of the server beside the run (`serve`).
  /// ptqwatch_overhead_ratio reports the share lost. While the CPUs that the process may use are
  /// idle, the monitor works without pause. It rests if no core is spare, or if steps take longer
  /// while it works.
  double max_overhead = 0.02;
  /// Fits the measurements of a snapshot to the spare time of the machine and to the schedule:
  /// fewer probe and calibration batches, a smaller curvature batch, curvature at every k-th
  /// snapshot (Report::plan, Event::Kind::kPlanChanged). Snapshots that fall due while the monitor
  /// rests are skipped. False: every snapshot is measured with all batches, however long that
  /// takes.
  bool adapt_plan = true;
  /// Fixed share of wall-clock time to work, in (0, 1], even if the machine is idle.
  std::optional<double> duty_cycle = {};
  /// Memory in bytes that the monitor may hold from Create on: replica, staged snapshot, optimizer
  /// moments, batches, forward passes and all measurements. If it is too small, the following are
  /// given up in this order, and the report says so: slices; retained gradient graphs (others take
  /// longer); Gram matrices and quantized weights of several layers and quantizers at a time (fewer
  /// take longer); the curvature along quantization errors; curvature; quantizers whose weights do
  /// not fit. Create fails if even the replica does not fit. 0: a quarter of the memory that the
  /// machine, the cgroup and the process limits leave free at Create. Measurements never take more
  /// than half of the memory that is free when they start. The host and each GPU have separate
  /// budgets. On a GPU device_reserve_bytes is a limit too, and the only one if max_bytes is 0.
  int64_t max_bytes = 0;
  /// Threads that the trainer computes with; Finish may use as many. 0: at::get_num_threads() at
  /// Create.
  int training_threads = 0;

  /// Threads that measure, for a machine that has so many cores to spare, with `process` only: a
  /// process that measures a large model on the CPU is slow with one. Losses and curvature are
  /// computed by LibTorch's, and may differ in their last bits from those with another number;
  /// quantized weights do not. While no core is spare, `max_overhead` holds for one of them only.
  int measuring_threads = 1;
  /// "bfloat16" or "float16", with `process` only: the dtype to which parameters in float32 are
  /// rounded as they are copied, which halves copies and their memory. What is measured is then the
  /// model with these weights, which is what is deployed if they are stored so
  /// (Report::snapshot_dtype). Empty: they are copied as they are.
  std::string snapshot_dtype = {};

  /// Device of the replica and of all measurements, for models on a GPU:
  ///   "auto"     the model's own device, but the CPU for a model on a GPU that has at most
  ///              kMostParametersOnCpu parameters or is trained by another process
  ///   "trainer"  the model's own device
  ///   "cpu", "cuda:1", ...
  /// On the trainer's own GPU nothing isolates the monitor from training, unless it is a process of
  /// its own: a failed assertion or an illegal access in a kernel started by the losses closure
  /// ends all CUDA work of the process, and no priority keeps the monitor's kernels from delaying
  /// others. Everything that the closure
  /// and the replica use besides their tensors must work on this device.
  std::string monitor_device = "auto";
  /// For models on a GPU whose trainer calls Monitor::BeforeUpdate: copies parameters on a stream
  /// of the monitor, beside the next forward and backward passes, instead of on the trainer's
  /// stream.
  bool copy_beside_training = false;
  /// Free bytes of a GPU that the monitor leaves to others. Create fails if the monitor's copies
  /// would use them; the first snapshot is not measured if it would. Later snapshots need no more
  /// memory than the first.
  int64_t device_reserve_bytes = int64_t{1} << 30;

  /// Identifies the run in journals and metrics. Empty: taken from `run_dir` on resume, else
  /// generated; with `ranks`, else the last part of `run_dir`.
  std::string run_id = {};
  /// Directory of the run, created if missing. The monitor keeps its journal (one line for each
  /// report and event) and its state there. A directory that holds a run is resumed. Empty: the
  /// monitor writes no files.
  std::string run_dir = {};
  /// Continue in a `run_dir` whose run had another model, other data, quantizers or seed (another
  /// Report::fingerprint). Its numbers are not comparable with the new ones, so verdicts start
  /// over. If false, Create fails in such a directory.
  bool allow_changed_run = false;

  /// For trainers that hold the same weights (data-parallel training): this trainer's number, from
  /// 0, and the number of trainers. Each trainer makes a share of the measurements, the same at
  /// every snapshot, and writes the directory `run_dir`/rank-NNNN; a reader of `run_dir` sees one
  /// run. The monitors never talk to each other. All need equal options, probe and calibration
  /// data, and the same `run_dir`. Snapshots are taken at the steps of the schedule, or at every
  /// 2nd, 4th, 8th, ... of them if a trainer has less time; `every_seconds` is refused. Set both or
  /// neither. Neither: taken from the environment. `ranks` = 1: a trainer alone. The ranks of a
  /// sharded model have numbers here, too, and what they share is in docs/sharded.md.
  std::optional<int64_t> rank = {};
  std::optional<int64_t> ranks = {};
  /// Whether `rank` and `ranks`, if unset, come from the launcher's variables. The first pair that
  /// is set counts: RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and _SIZE, PMI_RANK and
  /// PMI_SIZE, or, inside a job step, SLURM_PROCID and SLURM_STEP_NUM_TASKS. Set it to false if the
  /// trainers have different weights, or if only one of them has a monitor.
  bool ranks_from_environment = true;

  /// Starts `ptqwatch serve` beside the run, as a separate process: /metrics, gRPC and the live
  /// page. Create waits up to 5 s for it. If it cannot be started, MonitorStatus::server, the log
  /// and an event say why, and training goes on. Without a `run_dir` the run is kept in a temporary
  /// directory, which the server removes. On each machine only local rank 0 (LOCAL_RANK,
  /// OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID; without them `rank` 0) starts a
  /// server. With `ranks` it serves the run of all ranks, and needs a `run_dir`.
  std::optional<ServeOptions> serve = {};
  /// Measures in a process of its own, so that nothing that the losses closure does can end the
  /// trainer; off by default. Needs a `run_dir` or `serve`, and no exporters. OnStep copies due
  /// snapshots to memory that both processes share, in the trainer's thread, so
  /// `copy_beside_training` has no effect. Reports are the same bits. A process that ends is
  /// replaced. Commands of Monitor::control are limited like those of other programs. A model that
  /// is sharded over ranks (NamedTensor::global_shape) is measured in no other way.
  std::optional<ProcessOptions> process = {};

  /// Tests pass a fake clock. Must outlive the monitor, and also its thread if Stop missed its
  /// deadline.
  Clock* clock = Clock::Real();
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const MonitorOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_OPTIONS_H_
