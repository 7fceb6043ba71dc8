// Tests of report streams: order, backlog, slow and vanishing readers.

#include <malloc.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "report_proto.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_watch_test {

using testing::Eventually;
using testing::GrpcClient;
using ::testing::HasSubstr;
using testing::SampleReport;
using testing::Watch;

size_t AllocatedBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

class GrpcWatchTest : public testing::GrpcTest {};

TEST_F(GrpcWatchTest, StreamsReportsAsTheyAreMade) {
  CreateAndStart();
  Watch watch(address());
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    run_->Publish(sequence);
    v1::WatchReportsResponse response;
    ASSERT_TRUE(watch.Read(&response));
    AnalyzedReport expected = SampleReport();
    expected.report.sequence = sequence;
    expected.report.step = 100 * sequence;
    EXPECT_EQ(internal::FromProto(response.report()), expected);
    EXPECT_EQ(response.missed(), 0);
  }
}

TEST_F(GrpcWatchTest, StartsWithTheNextReportUnlessAskedForMore) {
  CreateAndStart();
  for (int64_t sequence = 1; sequence <= 5; ++sequence) run_->Publish(sequence);
  Watch next(address());
  Watch all(address(), 0);
  Watch some(address(), 3);
  Watch none(address(), 5);
  run_->Publish(6);
  int64_t missed = -1;
  EXPECT_EQ(next.Next(&missed), 6);
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(none.Next(), 6);
  for (int64_t sequence = 1; sequence <= 6; ++sequence) {
    EXPECT_EQ(all.Next(&missed), sequence);
    EXPECT_EQ(missed, 0);
  }
  for (int64_t sequence = 4; sequence <= 6; ++sequence) EXPECT_EQ(some.Next(), sequence);
}

TEST_F(GrpcWatchTest, HasNeitherGapNorDuplicateBetweenBacklogAndLive) {
  constexpr int kReports = 200;
  CreateAndStart();
  std::atomic<int64_t> published{0};
  std::thread monitor([&] {
    Watch pace(address(), 0);
    while (published < kReports) {
      run_->Publish(published + 1);
      ++published;
      pace.Next();
    }
  });
  // Each client connects at a different point of the run.
  for (int client = 0; client < 8; ++client) {
    const int64_t seen = published;
    Watch watch(address(), seen / 2);
    for (int64_t sequence = seen / 2 + 1; sequence <= std::min<int64_t>(seen + 20, kReports);
         ++sequence) {
      int64_t missed = -1;
      ASSERT_EQ(watch.Next(&missed), sequence);
      ASSERT_EQ(missed, 0);
    }
  }
  monitor.join();
}

TEST_F(GrpcWatchTest, LeavesLayersOutForThoseWhoAsk) {
  CreateAndStart();
  Watch with(address());
  Watch without(address(), std::nullopt, /*without_layers=*/true);
  run_->Publish(1);
  v1::WatchReportsResponse response;
  ASSERT_TRUE(without.Read(&response));
  EXPECT_EQ(response.report().quantization_size(), 2);
  EXPECT_EQ(response.report().quantization(0).layers_size(), 0);
  EXPECT_EQ(response.report().skipped_layers_size(), 0);
  EXPECT_EQ(response.report().curvature().layers_size(), 0);
  EXPECT_EQ(response.report().curvature().top_eigenvalue(), 9.25);
  ASSERT_TRUE(with.Read(&response));
  EXPECT_EQ(response.report().quantization(0).layers_size(), 2);
}

TEST_F(GrpcWatchTest, CountsWhatTheHistoryNoLongerHas) {
  CreateAndStart({.history = {.reports = 4}});
  for (int64_t sequence = 1; sequence <= 10; ++sequence) run_->Publish(sequence);
  Watch watch(address(), 2);
  int64_t missed = -1;
  EXPECT_EQ(watch.Next(&missed), 7);
  EXPECT_EQ(missed, 4);
  EXPECT_EQ(watch.Next(&missed), 8);
  EXPECT_EQ(missed, 0);
}

TEST_F(GrpcWatchTest, CapsTheHistoryInBytes) {
  CreateAndStart({.history = {.bytes = 100'000}});
  for (int64_t sequence = 1; sequence <= 4; ++sequence)
    run_->Publish(sequence, 20'000);  // in two forms
  int64_t missed = -1;
  Watch watch(address(), 0);
  EXPECT_EQ(watch.Next(&missed), 3);
  EXPECT_EQ(missed, 2);
  run_->Publish(5, 1'000'000);  // kept, although larger than the cap
  EXPECT_EQ(Watch(address(), 4).Next(), 5);
  v1::ListReportsResponse page;
  ASSERT_TRUE(GrpcClient(address()).List({}, &page).ok());
  EXPECT_EQ(page.oldest_sequence(), 5);
}

TEST_F(GrpcWatchTest, TellsASlowReaderWhatItMissedAndServesOthers) {
  constexpr int64_t kReports = 1000;
  constexpr size_t kBytes = 32 << 10;
  CreateAndStart({.history = {.reports = 16}});
  Watch slow(address());
  Watch good(address());
  size_t before = 0;
  for (int64_t sequence = 1; sequence <= kReports; ++sequence) {
    run_->Publish(sequence, kBytes);
    int64_t missed = -1;
    ASSERT_EQ(good.Next(&missed), sequence);
    ASSERT_EQ(missed, 0);
    if (sequence == 200) before = AllocatedBytes();
  }
  EXPECT_LT(AllocatedBytes(), before + 100 * kBytes);  // while 1600 * kBytes were published

  int64_t received = 0, missed_total = 0, last = 0, gaps = 0;
  while (last < kReports) {
    int64_t missed = -1;
    const int64_t sequence = slow.Next(&missed);
    ASSERT_EQ(sequence, last + missed + 1);
    last = sequence;
    ++received;
    missed_total += missed;
    gaps += missed > 0;
  }
  EXPECT_EQ(received + missed_total, kReports);
  EXPECT_GT(missed_total, kReports / 2);
  EXPECT_EQ(gaps, 1);  // only the oldest are dropped, in one place
  run_->Publish(kReports + 1);
  int64_t missed = -1;
  EXPECT_EQ(slow.Next(&missed), kReports + 1);
  EXPECT_EQ(missed, 0);
}

TEST_F(GrpcWatchTest, ReadsAHistoryThatLiesInAFile) {
  constexpr size_t kBytes = 100'000;
  CreateAndStart({.history = {.memory_bytes = 1'000'000}});
  for (int64_t sequence = 1; sequence <= 90; ++sequence) run_->Publish(sequence, kBytes);
  Watch watch(address(), 0);  // most of its backlog is in the file
  run_->Publish(91, kBytes);
  for (int64_t sequence = 1; sequence <= 91; ++sequence) {
    int64_t missed = -1;
    ASSERT_EQ(watch.Next(&missed), sequence);
    ASSERT_EQ(missed, 0);
  }
}

TEST_F(GrpcWatchTest, EndsOnlyTheStreamWhoseClientCannotTakeAReport) {
  CreateAndStart();
  Watch small(address());
  Watch large(address(), std::nullopt, false, "", 16 << 20);
  run_->Publish(1, 5 << 20);
  const grpc::Status status = small.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  EXPECT_EQ(large.Next(), 1);
  run_->Publish(2);
  EXPECT_EQ(large.Next(), 2);
  EXPECT_EQ(Watch(address(), 1).Next(), 2);
}

TEST_F(GrpcWatchTest, ForgetsClientsThatLeave) {
  CreateAndStart({.max_subscribers = 3});
  Watch stays(address());
  auto waits = std::make_unique<Watch>(address());
  auto stuck = std::make_unique<Watch>(address());
  EXPECT_EQ(Subscribers(), 3);
  for (int64_t sequence = 1; sequence <= 10; ++sequence) {
    run_->Publish(sequence, 100'000);
    EXPECT_EQ(stays.Next(), sequence);
  }
  EXPECT_EQ(Subscribers(), 3);
  stuck->Cancel();  // in the middle of a write
  EXPECT_TRUE(Eventually([&] { return Subscribers() == 2; }));
  waits.reset();
  EXPECT_TRUE(Eventually([&] { return Subscribers() == 1; }));
  run_->Publish(11);
  EXPECT_EQ(stays.Next(), 11);
  EXPECT_EQ(Watch(address(), 10).Next(), 11);
}

TEST_F(GrpcWatchTest, TakesAsManySubscribersAsItIsTold) {
  CreateAndStart({.max_subscribers = 2});
  Watch first(address());
  auto second = std::make_unique<Watch>(address());
  const grpc::Status status = Watch(address()).Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("2 clients"));
  second.reset();
  ASSERT_TRUE(Eventually([&] { return Subscribers() == 1; }));
  Watch third(address());
  run_->Publish(1);
  EXPECT_EQ(first.Next(), 1);
  EXPECT_EQ(third.Next(), 1);
}

TEST_F(GrpcWatchTest, RefusesWhatItCannotGive) {
  CreateAndStart();
  run_->Publish(1);
  const auto refusal = [&](std::optional<int64_t> after, const std::string& run_id = "") {
    return Watch(address(), after, false, run_id).Finish();
  };
  EXPECT_EQ(refusal(-1).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refusal(-1).error_message(), HasSubstr("is -1"));
  EXPECT_EQ(refusal(2).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refusal(2).error_message(), "after_sequence 2 is beyond the newest report, 1");
  EXPECT_EQ(refusal(0, "other").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(refusal(0, "other").error_message(), HasSubstr("'other'"));
  EXPECT_THAT(refusal(0, "other").error_message(), HasSubstr("'run-1'"));
  EXPECT_EQ(Watch(address(), 0, false, "run-1").Next(), 1);
}

TEST_F(GrpcWatchTest, DropsReportsThatComeOutOfOrder) {
  CreateAndStart();
  Watch watch(address());
  run_->Publish(2);
  run_->Publish(2);
  run_->Publish(1);
  run_->Publish(3);
  EXPECT_EQ(watch.Next(), 2);
  EXPECT_EQ(watch.Next(), 3);
  const v1::GetStatusResponse status = GrpcClient(address()).Status();
  ASSERT_EQ(status.dropped_reports_size(), 1);
  EXPECT_EQ(status.dropped_reports(0).reason(), "out_of_order");
  EXPECT_EQ(status.dropped_reports(0).count(), 2);
}

TEST_F(GrpcWatchTest, ServesClientsThatComeAndGoWhileReportsAreMade) {
  CreateAndStart({.max_subscribers = 100, .history = {.reports = 8}});
  std::atomic<bool> done{false};
  std::atomic<int64_t> read{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < 10; ++round) {
        Watch watch(address(), client % 2 == 0 ? std::optional<int64_t>(0) : std::nullopt);
        int64_t last = 0;
        for (int k = 0; k < 5; ++k) {
          const int64_t sequence = watch.Next();
          ASSERT_GT(sequence, last);
          last = sequence;
          ++read;
        }
      }
    });
  }
  std::thread monitor([&] {
    for (int64_t sequence = 1; !done; ++sequence) {
      run_->Publish(sequence, 1000);
      GrpcClient(address()).Status();
    }
  });
  for (std::thread& client : clients) client.join();
  done = true;
  monitor.join();
  EXPECT_EQ(read, 4 * 10 * 5);
}

Event SampleEvent(int64_t step, const std::string& message) {
  Event event;
  event.kind = Event::Kind::kPhaseChange;
  event.severity = Severity::kWarning;
  event.step = step;
  event.time_unix_seconds = 1e9;
  event.message = message;
  return event;
}

v1::WatchReportsRequest WithEvents(std::optional<int64_t> after_event) {
  v1::WatchReportsRequest request;
  request.set_after_sequence(0);
  request.set_with_events(true);
  if (after_event) request.set_after_event(*after_event);
  return request;
}

TEST_F(GrpcWatchTest, ARunThatIsOverCanStillBeRead) {
  CreateAndStart();
  run_->Publish(1);
  run_->Publish(2);
  Watch before(address(), 2);
  run_->Publish(Event{.kind = Event::Kind::kStopped, .message = ""});
  const grpc::Status ended = before.Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ended.error_message(), "the monitor has stopped");
  Watch after(address(), 0);
  EXPECT_EQ(after.Next(), 1);
  EXPECT_EQ(after.Next(), 2);
  EXPECT_EQ(after.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  // The run resumes.
  run_->Publish(Event{.kind = Event::Kind::kResumed, .message = ""});
  Watch resumed(address(), 2);
  run_->Publish(3);
  EXPECT_EQ(resumed.Next(), 3);
}

TEST_F(GrpcWatchTest, StreamsEventsInTheirPlaceAmongTheReports) {
  CreateAndStart();
  run_->Publish(SampleEvent(50, "first"));
  run_->Publish(1);
  run_->Publish(SampleEvent(150, "sec\xFFond"));
  run_->Publish(2);
  Watch watch(address(), WithEvents(0));
  v1::WatchReportsResponse response;
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_FALSE(response.has_report());
  EXPECT_EQ(response.event().number(), 1);
  EXPECT_EQ(response.event().message(), "first");
  EXPECT_EQ(watch.Next(), 1);
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_EQ(response.event().number(), 2);
  EXPECT_EQ(response.event().kind(), v1::EVENT_KIND_PHASE_CHANGE);
  EXPECT_EQ(response.event().severity(), v1::SEVERITY_WARNING);
  EXPECT_EQ(response.event().step(), 150);
  EXPECT_EQ(response.event().time_unix_seconds(), 1e9);
  EXPECT_EQ(response.event().message(), "sec\uFFFDond");
  EXPECT_EQ(watch.Next(), 2);
}

TEST_F(GrpcWatchTest, StreamsEventsOnlyToThoseWhoAsk) {
  CreateAndStart();
  run_->Publish(SampleEvent(10, "first"));
  run_->Publish(1);
  Watch old(address(), 0);
  Watch next(address(), WithEvents(std::nullopt));
  Watch later(address(), WithEvents(1));
  run_->Publish(SampleEvent(20, "second"));
  run_->Publish(2);
  EXPECT_EQ(old.Next(), 1);
  EXPECT_EQ(old.Next(), 2);
  for (Watch* watch : {&next, &later}) {
    EXPECT_EQ(watch->Next(), 1);
    v1::WatchReportsResponse response;
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.event().message(), "second");
    EXPECT_EQ(watch->Next(), 2);
  }
  run_->Publish(SampleEvent(30, "last"));
  run_->End();
  v1::WatchReportsResponse response;
  ASSERT_TRUE(next.Read(&response));
  EXPECT_EQ(response.event().message(), "last");
  EXPECT_EQ(old.Next(), -1);
}

TEST_F(GrpcWatchTest, RefusesANegativeEventNumber) {
  CreateAndStart();
  Watch watch(address(), WithEvents(-1));
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace grpc_watch_test
}  // namespace ptqwatch
