// What a report costs the monitor thread where clients watch over gRPC, and what it costs the
// exporter's own thread to turn it into bytes. The time of OnReport is CPU time of the calling
// thread and must stay under 100 us. all_received_us is wall time from OnReport until each of the
// subscribers, all in this process, has parsed the report.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "report_proto.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"

namespace {

using ptqwatch::AnalyzedReport;
using ptqwatch::GrpcExporter;
using std::chrono::steady_clock;

// Of `layers` layers under `quantizers` quantizers.
AnalyzedReport MakeReport(int64_t layers, int64_t quantizers) {
  AnalyzedReport report = ptqwatch::testing::SampleReport();
  report.report.quantization.clear();
  report.report.curvature->layers.clear();
  for (int64_t i = 0; i < layers; ++i) {
    report.report.curvature->layers.push_back(
        {"blocks." + std::to_string(i) + ".attention.qkv.weight", 12288, 200.25, 9.5, 0.021});
  }
  for (int64_t q = 0; q < quantizers; ++q) {
    auto entry = ptqwatch::testing::SampleQuantization(ptqwatch::QuantizationMethod::kGptq,
                                                       static_cast<int>(q) + 2, 0.2);
    entry.layers.clear();
    for (const auto& layer : report.report.curvature->layers) {
      entry.layers.push_back(ptqwatch::testing::SampleLayer(layer.name, 0.0231));
    }
    report.report.quantization.push_back(std::move(entry));
  }
  return report;
}

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A client with a connection and a thread of its own, until the stream ends.
class Subscriber {
 public:
  explicit Subscriber(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = ptqwatch::v1::MonitorService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    reader_ = stub_->WatchReports(&context_, {});
    reader_->WaitForInitialMetadata();
    thread_ = std::thread([this] {
      ptqwatch::v1::WatchReportsResponse response;
      while (reader_->Read(&response)) {
        received_ = response.report().sequence();
        received_.notify_all();
      }
    });
  }
  ~Subscriber() {
    thread_.join();
    reader_->Finish();
  }
  void WaitFor(int64_t sequence) const {
    for (int64_t seen = received_; seen < sequence; seen = received_) received_.wait(seen);
  }

 private:
  std::unique_ptr<ptqwatch::v1::MonitorService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<ptqwatch::v1::WatchReportsResponse>> reader_;
  std::atomic<int64_t> received_{0};
  std::thread thread_;
};

// Arguments: subscribers, layers. Where nobody watches, only the exporter's queue is between two
// reports.
void OnReport(benchmark::State& state) {
  ptqwatch::testing::FakeStatusSource source;
  auto exporter = GrpcExporter::Create({.address = "127.0.0.1:0"});
  if (!exporter.ok() || !(*exporter)->Start(&source, nullptr).ok()) {
    std::fprintf(stderr, "%s\n", exporter.status().ToString().c_str());
    std::abort();
  }
  std::vector<std::unique_ptr<Subscriber>> subscribers;
  for (int64_t i = 0; i < state.range(0); ++i) {
    subscribers.push_back(std::make_unique<Subscriber>((*exporter)->address()));
  }
  AnalyzedReport report = MakeReport(state.range(1), 4);
  double most = 0, received = 0;
  int64_t sequence = 0;
  for (auto _ : state) {
    report.report.sequence = ++sequence;
    auto shared = std::make_shared<const AnalyzedReport>(report);
    const auto start = steady_clock::now();
    const double cpu_start = ThreadCpuSeconds();
    (*exporter)->OnReport(std::move(shared));
    const double cpu = ThreadCpuSeconds() - cpu_start;
    state.SetIterationTime(cpu);
    most = std::max(most, cpu);
    for (const auto& subscriber : subscribers) subscriber->WaitFor(sequence);
    received += std::chrono::duration<double>(steady_clock::now() - start).count();
  }
  state.counters["most_us"] = 1e6 * most;
  if (!subscribers.empty()) {
    state.counters["all_received_us"] = 1e6 * received / static_cast<double>(state.iterations());
  }
  (*exporter)->Stop(std::chrono::seconds(5));
}
BENCHMARK(OnReport)
    ->ArgNames({"subscribers", "layers"})
    ->ArgsProduct({{0, 1, 50}, {8, 200}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(300);

// Both forms of a report, as the exporter's thread makes them.
void ConvertAndSerialize(benchmark::State& state) {
  const AnalyzedReport report = MakeReport(state.range(0), 4);
  ptqwatch::v1::Report message;
  size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const bool with_layers : {true, false}) {
      ptqwatch::internal::ToProto(report, &message, with_layers);
      bytes += message.SerializeAsString().size();
    }
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(ConvertAndSerialize)->ArgName("layers")->Arg(8)->Arg(200)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
