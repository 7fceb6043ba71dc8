// What a request costs the process that serves it: /metrics of a run with 64 layers and every
// method, and what the live page asks for first.
//
//   build/release/bin/bench_http

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "benchmark/benchmark.h"
#include "httplib.h"
#include "ptqwatch/prometheus_exporter.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"

namespace ptqwatch {
namespace {

constexpr int kLayers = 64;
constexpr int kReports = 1000;

AnalyzedReport LargeReport(int64_t sequence) {
  AnalyzedReport analyzed = testing::SampleReport();
  Report& report = analyzed.report;
  report.sequence = sequence;
  report.quantization.clear();
  report.curvature->layers.clear();
  const auto add = [&](QuantizationMethod method, int bits) {
    QuantizationReport entry = testing::SampleQuantization(method, bits, 0.3 / bits);
    entry.layers.clear();
    for (int i = 0; i < kLayers; ++i) {
      const double error = 0.01 + 1e-4 / 3 * ((i * 37) % kLayers);
      entry.layers.push_back(testing::SampleLayer(
          "transformer.blocks." + std::to_string(i) + ".attention.weight", error));
    }
    report.quantization.push_back(std::move(entry));
  };
  for (const int bits : {2, 3, 4, 8}) {
    for (const QuantizationMethod method :
         {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
      add(method, bits);
    }
  }
  add(QuantizationMethod::kNf4, 4);
  add(QuantizationMethod::kLlmInt8, 8);
  for (const LayerQuantization& layer : report.quantization[0].layers) {
    report.curvature->layers.push_back({layer.name, 4096, 200.25, 9.5, 0.021});
  }
  return analyzed;
}

struct Served {
  testing::FakeStatusSource source;
  std::unique_ptr<PrometheusExporter> exporter;
  std::unique_ptr<httplib::Client> client;
  int64_t sequence = 0;

  void Publish() {
    auto report = std::make_shared<const AnalyzedReport>(LargeReport(++sequence));
    source.SetLatest(report);
    exporter->OnReport(std::move(report));
  }
};

std::unique_ptr<Served> Serve() {
  auto served = std::make_unique<Served>();
  auto exporter =
      PrometheusExporter::Create({.address = "127.0.0.1:0", .on_failure = OnFailure::kError});
  if (!exporter.ok() || !(*exporter)->Start(&served->source, nullptr).ok()) std::exit(1);
  served->exporter = *std::move(exporter);
  const std::string& address = served->exporter->address();
  served->client = std::make_unique<httplib::Client>(
      "127.0.0.1", std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  served->client->set_decompress(false);
  return served;
}

void Get(Served& served, const char* path, const httplib::Headers& headers,
         benchmark::State& state) {
  const httplib::Result answer = served.client->Get(path, headers);
  if (!answer || answer->status != 200) {
    state.SkipWithError("no answer");
    return;
  }
  state.counters["bytes"] = static_cast<double>(answer->body.size());
}

// Argument: whether gzip is asked for, as Prometheus does.
httplib::Headers HeadersFor(const benchmark::State& state) {
  if (state.range(0) == 0) return {};
  return {{"Accept-Encoding", "gzip"}};
}

void Scrape(benchmark::State& state) {
  const auto served = Serve();
  served->Publish();
  for (auto _ : state) Get(*served, "/metrics", HeadersFor(state), state);
}
BENCHMARK(Scrape)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void FirstScrapeOfAReport(benchmark::State& state) {
  const auto served = Serve();
  for (auto _ : state) {
    state.PauseTiming();
    served->Publish();
    state.ResumeTiming();
    Get(*served, "/metrics", HeadersFor(state), state);
  }
}
BENCHMARK(FirstScrapeOfAReport)
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();

// On the monitor's thread.
void PublishReport(benchmark::State& state) {
  const auto served = Serve();
  for (auto _ : state) served->Publish();
}
BENCHMARK(PublishReport)->Unit(benchmark::kMillisecond);

void SeriesOfAThousandReports(benchmark::State& state) {
  const auto served = Serve();
  for (int i = 0; i < kReports; ++i) served->Publish();
  for (auto _ : state) {
    Get(*served, "/api/v1/reports?after=0&series=1", HeadersFor(state), state);
  }
}
BENCHMARK(SeriesOfAThousandReports)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace ptqwatch

BENCHMARK_MAIN();
