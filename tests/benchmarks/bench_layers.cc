// How the cost of a report follows the number of layers (the argument), under six quantizers: of a
// mixture of experts with 48 blocks, each of three matrices an expert and four others, or, if the
// argument is 224, of a dense model with 32 blocks of seven matrices. Every time must be at most
// proportional to the number of layers. `bytes` is the size of the journal's line. Create and
// Snapshot are those of a model whose matrices are of 8x8 weights.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "base/strings.h"
#include "journal/report_line.h"
#include "metrics/metric_page.h"
#include "probes/assemble_report.h"
#include "probes/probe_suite.h"
#include "probes/quantizer_report.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"
#include "ranks/merge_reports.h"

namespace ptqwatch::benchmarks {
namespace {

constexpr int64_t kBlocks = 48;
constexpr int64_t kDense = 4 * kBlocks;

template <typename Value>
Value ValueOrAbort(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::abort();
}

constexpr int64_t kDenseModel = 224;

std::vector<std::string> Names(int64_t layers) {
  const int64_t blocks = layers == kDenseModel ? 32 : kBlocks;
  const int64_t experts = (layers - kDense) / (3 * kBlocks);
  std::vector<std::string> names;
  for (int64_t block = 0; block < blocks; ++block) {
    const std::string prefix = internal::StrCat("model.layers.", block);
    for (const char* matrix : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      names.push_back(internal::StrCat(prefix, ".self_attn.", matrix, ".weight"));
    }
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
      if (layers == kDenseModel)
        names.push_back(internal::StrCat(prefix, ".mlp.", matrix, ".weight"));
      for (int64_t expert = 0; expert < experts; ++expert) {
        names.push_back(internal::StrCat(prefix, ".mlp.experts.", expert, ".", matrix, ".weight"));
      }
    }
  }
  return names;
}

// No two alike.
double Noise(size_t i) { return 1 + 0.5 * std::sin(12.9898 * static_cast<double>(i)); }

std::vector<internal::QuantizedLayerRow> RowsOf(const std::vector<std::string>& names,
                                                size_t seed) {
  std::vector<internal::QuantizedLayerRow> rows;
  for (size_t i = 0; i < names.size(); ++i) {
    internal::QuantizedLayerRow& row = rows.emplace_back();
    row.report.name = names[i];
    row.report.output_error_ratio = 0.01 * Noise(seed + i);
    row.report.rtn_output_error_ratio = 0.02 * Noise(seed + 2 * i);
    row.report.damp = 0.01;
    row.report.tokens = names.size() == kDenseModel ? 4096 : 200 + static_cast<int64_t>(i % 97);
    row.report.dead_columns = 0;
    row.report.status = LayerStatus::kOk;
    row.parameters = 1 << 20;
    row.squared_displacement = Noise(seed + 3 * i);
    row.output_energy = Noise(seed + 5 * i);
  }
  return rows;
}

std::vector<internal::ProbeResult> Results(const std::vector<std::string>& names) {
  internal::QuantizationResult quantization;
  internal::CurvatureResult curvature;
  for (size_t i = 0; i < 6; ++i) {
    QuantizationReport& report = quantization.quantizers.emplace_back();
    report.method = i % 2 == 0 ? QuantizationMethod::kGptq : QuantizationMethod::kRtn;
    report.bits = 2 + static_cast<int>(i / 2);
    report.status = ProbeStatus::kOk;
    report.error_ratio = 0.01 * Noise(i);
    std::vector<internal::QuantizedLayerRow> rows = RowsOf(names, 1000 * i);
    for (internal::QuantizedLayerRow& row : rows) {
      if (report.method != QuantizationMethod::kRtn) continue;
      row.report.rtn_output_error_ratio = row.report.output_error_ratio;
    }
    internal::AddRows(std::move(rows), int64_t{1} << 35, report).IgnoreError();
    internal::ErrorCurvature error;
    for (size_t layer = 0; layer < names.size(); ++layer) {
      error.layers.push_back({names[layer], 1e-6 * Noise(layer), 1e-5 * Noise(i + layer)});
    }
    curvature.errors.emplace_back(std::move(error));
  }
  curvature.report.status = ProbeStatus::kOk;
  for (const LayerQuantization& layer : quantization.quantizers[0].layers) {
    curvature.report.layers.push_back({.name = layer.name,
                                       .parameters = 1 << 20,
                                       .trace = 100 * Noise(curvature.report.layers.size()),
                                       .trace_stderr = 9.5,
                                       .weight_mean_square = 0.001,
                                       .stacked = layer.stacked});
  }
  for (const std::string& name : names) quantization.skipped_layers.push_back({name, "a norm", 9});
  std::vector<internal::ProbeResult> results(2);
  results[0].value = std::move(quantization);
  results[1].value = std::move(curvature);
  return results;
}

AnalyzedReport ReportOf(int64_t layers) {
  return {.report = internal::AssembleReport({}, Results(Names(layers))), .verdict = {}};
}

void Rows(benchmark::State& state) {
  const std::vector<std::string> names = Names(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Results(names));
}

void Assemble(benchmark::State& state) {
  const std::vector<internal::ProbeResult> results = Results(Names(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(internal::AssembleReport({}, results));
}

void Line(benchmark::State& state) {
  const AnalyzedReport report = ReportOf(state.range(0));
  std::string line;
  for (auto _ : state) line = internal::ReportLine(report);
  state.counters["bytes"] = static_cast<double>(line.size());
}

void Read(benchmark::State& state) {
  const std::string line = internal::ReportLine(ReportOf(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(ValueOrAbort(FromJson(line)));
}

void Metrics(benchmark::State& state) {
  const AnalyzedReport report = ReportOf(state.range(0));
  const RunInfo run = {};
  const MonitorStatus status = {};
  for (auto _ : state) {
    const std::string page = internal::MetricPage(64).Render(
        {{.run = "", .input = {run, status, &report, 1.7e9}}}, internal::MetricFormat::kText);
    benchmark::DoNotOptimize(page.size());
  }
}

void Merge(benchmark::State& state) {
  const Report report = ReportOf(state.range(0)).report;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        internal::MergeReports({report, report, report, report}, /*complete=*/true));
  }
}

std::unique_ptr<Subject> Model(int64_t layers) {
  std::vector<NamedTensor> live;
  for (const std::string& name : Names(layers)) {
    live.push_back({name, at::ones({8, 8}).mul_(0.01), true});
  }
  return MakeFunctionSubject(
      {.live = live,
       .losses = [](const TensorMap& tensors, const Batch& batch) -> LossValues {
         at::Tensor sum = at::zeros({batch[0].size(0), 8});
         for (const auto& [name, tensor] : tensors) {
           sum += at::linear(batch[0], tensor);
         }
         return sum.square().sum(1) + 1;
       },
       .probe = {{at::ones({64, 8})}}});
}

MonitorOptions Options() {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8}};
  options.layers.output_head = true;
  options.curvature.enabled = false;
  options.averaging.enabled = false;
  options.noise_relative_norm = 0;
  return options;
}

void Create(benchmark::State& state) {
  at::set_num_threads(1);
  for (auto _ : state) {
    const auto monitor = ValueOrAbort(Monitor::Create(Model(state.range(0)), Options()));
    state.counters["described"] = static_cast<double>(monitor->Describe().size());
  }
}

void Snapshot(benchmark::State& state) {
  at::set_num_threads(1);
  const auto subject = Model(state.range(0));
  const auto suite = ValueOrAbort(internal::ProbeSuite::Create(
      ValueOrAbort(internal::ModelSession::Open(*subject, internal::SessionOptions(Options()))),
      Options()));
  internal::Snapshot snapshot;
  for (const internal::TensorEntry& entry : suite->session().live().entries) {
    snapshot.tensors.push_back(entry.tensor);
  }
  suite->Load(snapshot);
  for (auto _ : state) benchmark::DoNotOptimize(ValueOrAbort(suite->Measure({}, {})));
}

void Scales(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(kDense + 3 * kBlocks * 32)->Arg(kDense + 3 * kBlocks * 128);
  benchmark->Unit(benchmark::kMillisecond);
}
BENCHMARK(Rows)->Apply(Scales);
BENCHMARK(Assemble)->Apply(Scales);
BENCHMARK(Line)->Arg(kDenseModel)->Apply(Scales);
BENCHMARK(Read)->Arg(kDenseModel)->Apply(Scales);
BENCHMARK(Metrics)->Apply(Scales);
BENCHMARK(Merge)->Apply(Scales);
BENCHMARK(Create)->Apply(Scales)->Iterations(1);
BENCHMARK(Snapshot)->Apply(Scales)->Iterations(1);

}  // namespace
}  // namespace ptqwatch::benchmarks

BENCHMARK_MAIN();
