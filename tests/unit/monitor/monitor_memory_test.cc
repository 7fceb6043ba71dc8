// The memory that a monitor holds, and its behavior when memory is refused. A separate program,
// because it replaces malloc.

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "support/allocations.h"
#include "unit/monitor/monitor_fixture.h"

namespace ptqwatch {
namespace monitor_memory_test {

using std::chrono::seconds;
using testing::CountsAllocations;
using ::testing::HasSubstr;

constexpr double kMegabyte = 1e6;
// LibTorch makes small allocations in destructors; if they fail, the process ends.
constexpr size_t kLarge = 1024;
constexpr int64_t kForwardPass = 1 << 20;

// On Intel processors MKL packs operands into buffers of some megabytes a thread, which are not
// counted and larger than these models. It reads this before its first product.
[[maybe_unused]] const int kSmallBuffers = setenv("MKL_CBWR", "AVX", 1);

struct MonitorMemory : ::testing::Test {
  void SetUp() override {
    if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
    SetLogSink(Severity::kError, nullptr);
  }
  void TearDown() override { testing::FailAllocation(0, kLarge); }

  static MonitorOptions Options(int64_t max_bytes) {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.schedule.every = 1;
    options.duty_cycle = 1.0;
    options.max_bytes = max_bytes;
    options.adapt_plan = false;
    options.max_failures_in_a_row = 1 << 30;
    options.averaging.window = 2;  // full after two snapshots
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                          {.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 8}};
    return options;
  }

  // Creates a monitor and measures `snapshots`; returns the status of Create.
  absl::Status Run(testing::TinyTrainer& trainer, const MonitorOptions& options,
                   int64_t snapshots) {
    std::vector<std::unique_ptr<Exporter>> exporters;
    recording = std::make_shared<testing::Recording>();
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto created = Monitor::Create(trainer.MakeSubject(), options, std::move(exporters));
    if (!created.ok()) return created.status();
    monitor = *std::move(created);
    description = monitor->Describe();
    for (int64_t step = 1; step <= snapshots; ++step) Measure(trainer, step);
    latest = monitor->latest();
    monitor.reset();
    return absl::OkStatus();
  }
  void Measure(testing::TinyTrainer& trainer, int64_t step) {
    trainer.Step();
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
    EXPECT_TRUE(monitor->Finish(seconds(60)).ok());
  }
  // Parses "memory: 123.4 MB at most".
  double Described() const {
    const size_t at = description.find("memory: ");
    return at == std::string::npos ? 0 : std::atof(description.c_str() + at + 8) * kMegabyte;
  }

  std::shared_ptr<testing::Recording> recording;
  std::unique_ptr<Monitor> monitor;
  std::shared_ptr<const AnalyzedReport> latest;
  std::string description;
};

class DescribedMemory : public MonitorMemory, public ::testing::WithParamInterface<bool> {
 protected:
  static MonitorOptions Options(int64_t max_bytes) {
    MonitorOptions options = MonitorMemory::Options(max_bytes);
    options.curvature.enabled = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Curvature, DescribedMemory, ::testing::Bool());

TEST_P(DescribedMemory, IsWhatIsMeasured) {
  testing::TinyTrainer trainer(1, GetParam() ? 512 : 768);
  trainer.Step();
  const int64_t held =
      testing::PeakDuring([&] { ASSERT_TRUE(Run(trainer, Options(int64_t{4} << 30), 2).ok()); });
  const double measured = static_cast<double>(held);
  RecordProperty("measured_bytes", std::to_string(held));
  EXPECT_NEAR(Described() / measured, 1, 0.15) << "measured " << measured / kMegabyte << " MB\n"
                                               << description;
}

// Values that are present do not depend on the amount of memory.
void ExpectSameValues(const Report& report, const Report& full) {
  ASSERT_EQ(report.quantization.size(), full.quantization.size());
  for (size_t i = 0; i < full.quantization.size(); ++i) {
    if (report.quantization[i].status != ProbeStatus::kOk) continue;
    EXPECT_EQ(report.quantization[i].error_ratio, full.quantization[i].error_ratio);
  }
}

bool Complete(const Report& report) {
  if (report.curvature && report.curvature->status != ProbeStatus::kOk) return false;
  return std::all_of(report.quantization.begin(), report.quantization.end(),
                     [](const QuantizationReport& quantizer) {
                       return quantizer.status == ProbeStatus::kOk &&
                              quantizer.status_detail.empty();
                     });
}

TEST_P(DescribedMemory, NeverExceedsMaxBytes) {
  testing::TinyTrainer first(1, 384);
  first.Step();
  const int64_t all =
      testing::PeakDuring([&] { ASSERT_TRUE(Run(first, Options(int64_t{4} << 30), 1).ok()); });
  const Report full = latest->report;
  int64_t measured = 0;
  int64_t incomplete = 0;
  int64_t refused = 0;
  // With curvature, the shares in between take most of two minutes.
  const std::vector<double> shares = GetParam()
                                         ? std::vector<double>{1.3, 0.3, 0.1, 0.03}
                                         : std::vector<double>{1.3, 0.8, 0.5, 0.3, 0.1, 0.03};
  for (const double share : shares) {
    SCOPED_TRACE(share);
    const auto max_bytes = static_cast<int64_t>(share * static_cast<double>(all));
    testing::TinyTrainer trainer(1, 384);
    trainer.Step();
    absl::Status status;
    const int64_t held = testing::PeakDuring([&] { status = Run(trainer, Options(max_bytes), 1); });
    // The size of a forward pass is known only after the first one.
    EXPECT_LE(held, max_bytes + (status.ok() ? 0 : kForwardPass)) << description;
    if (!status.ok()) {
      ++refused;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("MonitorOptions.max_bytes = " + std::to_string(max_bytes)));
      continue;
    }
    EXPECT_LE(Described(), static_cast<double>(max_bytes) + 0.05 * kMegabyte) << description;
    ASSERT_NE(latest, nullptr);
    ExpectSameValues(latest->report, full);
    ++(Complete(latest->report) ? measured : incomplete);
  }
  EXPECT_GE(measured, 1);
  EXPECT_GE(incomplete, 1);
  EXPECT_GE(refused, 1);
}

TEST_F(MonitorMemory, SaysWhichMaxBytesWouldBringCurvatureBack) {
  testing::TinyTrainer first(1, 96);
  first.Step();
  ASSERT_TRUE(Run(first, Options(int64_t{4} << 30), 0).ok());
  const double all = Described();
  constexpr std::string_view kOption = "  max_bytes = ";
  size_t at = std::string::npos;
  for (double share = 0.7; at == std::string::npos && share > 0.05; share -= 0.05) {
    testing::TinyTrainer trainer(1, 96);
    trainer.Step();
    ASSERT_TRUE(Run(trainer, Options(static_cast<int64_t>(share * all)), 0).ok());
    at = description.find(kOption);
  }
  ASSERT_NE(at, std::string::npos) << description;
  EXPECT_THAT(description, HasSubstr("curvature: off"));
  ASSERT_FALSE(recording->Events().empty());
  EXPECT_THAT(recording->Events()[0].message, HasSubstr("would leave room for it"));
  const int64_t enough = std::atoll(description.c_str() + at + kOption.size());
  testing::TinyTrainer trainer(1, 96);
  trainer.Step();
  ASSERT_TRUE(Run(trainer, Options(enough), 1).ok());
  EXPECT_EQ(latest->report.curvature->status, ProbeStatus::kOk)
      << latest->report.curvature->status_detail << "\n"
      << description;
}

// Number of failing allocations per snapshot, evenly spread over all.
int64_t Faults() {
  const char* asked = std::getenv("PTQWATCH_FAULTS");
  return asked == nullptr ? 60 : std::max(2, std::atoi(asked));
}

// Makes allocations fail one after the other, in every part of a snapshot.
TEST_F(MonitorMemory, AFailingAllocatorChangesNothingOfTheTraining) {
  const int64_t faults = Faults();
  testing::TinyTrainer watched;
  std::vector<std::unique_ptr<Exporter>> exporters;
  auto created =
      Monitor::Create(watched.MakeSubject(), Options(int64_t{4} << 30), std::move(exporters));
  ASSERT_TRUE(created.ok()) << created.status();
  monitor = *std::move(created);
  Measure(watched, 1);
  testing::FailAllocation(0, kLarge);
  Measure(watched, 2);
  const int64_t allocations = testing::AllocationsOfOthers();
  ASSERT_GT(allocations, faults);
  int64_t incomplete = 0;
  for (int64_t i = 0; i < faults; ++i) {
    const int64_t nth = 1 + i * (allocations - 1) / (faults - 1);
    SCOPED_TRACE(nth);
    testing::FailAllocation(nth, kLarge);
    Measure(watched, 3 + i);
    const auto report = monitor->latest();
    const bool here = report != nullptr && report->report.step == 3 + i;
    incomplete += !here || report->report.probe_status != ProbeStatus::kOk;
  }
  testing::FailAllocation(0, kLarge);
  Measure(watched, 3 + faults);
  EXPECT_EQ(monitor->latest()->report.step, 3 + faults);
  EXPECT_EQ(monitor->latest()->report.quantization[0].status, ProbeStatus::kOk);
  testing::TinyTrainer alone;  // seeds the default generator again
  for (int64_t step = 1; step <= 3 + faults; ++step) alone.Step();
  EXPECT_TRUE(watched.Bytes() == alone.Bytes());
  RecordProperty("incomplete", std::to_string(incomplete));
}

// The snapshot's slot must become free again, or all later snapshots are skipped.
TEST_F(MonitorMemory, ARefusedReportCostsNoLaterSnapshot) {
  testing::TinyTrainer trainer;
  auto created = Monitor::Create(trainer.MakeSubject(), Options(int64_t{4} << 30), {});
  ASSERT_TRUE(created.ok()) << created.status();
  monitor = *std::move(created);
  const auto taken = [&] {
    return monitor->status().snapshots[static_cast<size_t>(SnapshotResult::kTaken)];
  };
  testing::FailAllocation(1, sizeof(AnalyzedReport));
  trainer.Step();
  monitor->OnStep({.step = 1, .learning_rate = 1e-2});
  (void)monitor->Finish(seconds(60));
  ASSERT_GE(testing::AllocationsOfOthers(), 1);
  testing::FailAllocation(0, kLarge);
  for (int64_t step = 2; step <= 4; ++step) {
    Measure(trainer, step);
    EXPECT_EQ(taken(), step);
    EXPECT_EQ(monitor->latest()->report.step, step);
  }
}

}  // namespace monitor_memory_test
}  // namespace ptqwatch
