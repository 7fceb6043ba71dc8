#include "jobs/jobs.h"

#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "probes/assemble_report.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace jobs_test {

using ::testing::ElementsAre;
using Work = JobStatus::Work;

// A job made by the recipe of CONTRIBUTING: counts to three between snapshots, one step a piece.
class CountingJob final : public Job {
 public:
  CountingJob(Work work, std::vector<std::string>& log) : work_(work), log_(log) {}

  std::vector<std::string_view> uses() const override { return {"quantization"}; }
  std::string Describe() const override { return "counts to 3\n"; }
  void Begin(const JobInput& input, const ExecutionContext& /*context*/) override {
    const auto* quantization = FindResult<QuantizationResult>(input.results);
    if (closed_ || quantization == nullptr) return;
    step_ = input.place.step;
    begun_ = true;
  }
  void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
               const ExecutionContext& /*context*/) override {
    if (step_ == kBad) throw std::runtime_error("cannot count");
    while (count_ < 3) {
      if (stop()) return;
      ++count_;
    }
    begun_ = false;
    callbacks.announce(Event::Kind::kCooldown, Severity::kInfo, step_, "counted to 3");
  }
  JobStatus Status() const override { return {.work = begun_ ? work_ : Work::kNone}; }
  void Abandon(const std::string& reason) override {
    begun_ = false;
    log_.push_back(reason);
  }
  void Close(const std::string& reason) override {
    closed_ = true;
    Abandon(reason);
  }
  ResultValue Result() const override {
    if (count_ < 3) return {};
    PredictedEnd end;
    end.step = step_;
    return end;
  }
  static constexpr int64_t kBad = 13;

 private:
  const Work work_;
  std::vector<std::string>& log_;
  bool closed_ = false;
  bool begun_ = false;
  int64_t step_ = 0;
  int count_ = 0;
};

class JobsTest : public ::testing::Test {
 protected:
  void Open(Work work) {
    auto suite = net_.Measure();
    ASSERT_TRUE(suite.ok()) << suite.status();
    suite_ = *std::move(suite);
    std::vector<MakeJob> list = AllJobs();
    list.push_back(
        [&, work](const JobParts&) { return std::make_unique<CountingJob>(work, log_); });
    jobs_ = std::make_unique<Jobs>(JobParts{*suite_, net_.options, trackers_}, list);
  }
  void Snapshot(int64_t step) {
    const SnapshotPlace place{.step = step};
    auto measured = suite_->Measure(place, {});
    ASSERT_TRUE(measured.ok()) << measured.status();
    jobs_->Begin(
        {.place = place, .results = absl::MakeSpan(measured->results), .callbacks = callbacks_},
        {});
  }
  // In pieces of so many.
  void Advance(int count) {
    jobs_->Advance([&] { return count-- == 0; }, callbacks_, {});
  }

  testing::TanhNet net_;
  std::vector<std::string> log_;
  JobCallbacks callbacks_{.announce =
                              [this](Event::Kind, Severity, int64_t step, std::string message) {
                                log_.push_back(std::to_string(step) + ": " + message);
                              },
                          .poll = [] {}};
  JobTrackers trackers_;
  std::unique_ptr<ProbeSuite> suite_;
  std::unique_ptr<Jobs> jobs_;
};

TEST_F(JobsTest, DrivesAJobThatTheListNamesInPieces) {
  Open(Work::kWhenSpare);
  EXPECT_THAT(jobs_->Describe(), ::testing::HasSubstr("counts to 3\n"));
  EXPECT_FALSE(jobs_->under_way());
  Snapshot(7);
  EXPECT_TRUE(jobs_->under_way());
  Advance(2);
  EXPECT_TRUE(jobs_->under_way());
  EXPECT_FALSE(AssembleReport({}, {}, jobs_->Results()).predicted_end);
  Snapshot(8);  // while it works
  Advance(100);
  EXPECT_FALSE(jobs_->under_way());
  EXPECT_THAT(log_, ElementsAre("8: counted to 3"));
  const Report report = AssembleReport({}, {}, jobs_->Results());
  ASSERT_TRUE(report.predicted_end);
  EXPECT_EQ(report.predicted_end->step, 8);
}

TEST_F(JobsTest, EndsWorkThatNeedsTheSnapshotBeforeTheNext) {
  Open(Work::kNow);
  Snapshot(7);
  EXPECT_THAT(log_, ElementsAre("7: counted to 3"));
  EXPECT_FALSE(jobs_->under_way());
}

TEST_F(JobsTest, AJobThatThrowsIsAbandoned) {
  Open(Work::kWhenSpare);
  Snapshot(CountingJob::kBad);
  Advance(100);
  EXPECT_THAT(log_, ElementsAre("cannot count"));
  EXPECT_FALSE(jobs_->under_way());
  Snapshot(14);
  Advance(100);
  EXPECT_EQ(log_.back(), "14: counted to 3");
}

TEST_F(JobsTest, ClosesJobsWhoseProbeIsSwitchedOff) {
  Open(Work::kWhenSpare);
  Snapshot(7);
  jobs_->ProbeSwitchedOff("curvature");
  EXPECT_TRUE(jobs_->under_way());
  jobs_->ProbeSwitchedOff("quantization");
  EXPECT_FALSE(jobs_->under_way());
  EXPECT_THAT(log_, ElementsAre("the quantization probe is switched off"));
  EXPECT_EQ(trackers_.slice.Accept({}).status().message(),
            "no slice: the quantization probe is switched off");
}

}  // namespace jobs_test
}  // namespace ptqwatch::internal
