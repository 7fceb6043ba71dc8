#include "snapshot/ordered_stream.h"

#include <gtest/gtest.h>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "support/fake_clock.h"
#include "support/fake_device.h"

namespace ptqwatch::internal {
namespace ordered_stream_test {

using std::chrono::milliseconds;

// A trainer whose weights are 1 after step 1, 2 after step 2, ..., all of it queued.
struct OrderedStreamTest : ::testing::Test {
  void Update() {
    const double value = ++step;
    device->Queued(trainer, [this, value] { weights.fill_(value); });
  }
  // Returns the value that the monitor sees if its stream runs before all work that need not come
  // first.
  double Read(bool wait = true) {
    device->SetCurrent(monitor);
    if (wait) stream.WaitForCopy();
    device->Queued(monitor, [this] { seen.copy_(slot); });
    device->Finish(monitor);
    device->SetCurrent(trainer);
    return seen.item<double>();
  }

  std::shared_ptr<testing::FakeDevice> device = std::make_shared<testing::FakeDevice>();
  DeviceRuntime::Stream trainer = device->Current();
  OrderedStream stream{device, std::nullopt, device};
  DeviceRuntime::Stream monitor = [this] {
    stream.EnterMonitorThread();
    const DeviceRuntime::Stream entered = device->Current();
    device->SetCurrent(trainer);
    return entered;
  }();
  at::Tensor weights = at::zeros({}, at::kDouble);
  at::Tensor slot = at::full({}, -1.0, at::kDouble);
  at::Tensor seen = at::full({}, -2.0, at::kDouble);
  int step = 0;
};

TEST_F(OrderedStreamTest, CopiesBetweenTheUpdates) {
  Update();
  stream.Copy({slot}, {weights});
  Update();
  EXPECT_EQ(Read(), 1);
}

TEST_F(OrderedStreamTest, ReadsTooEarlyWithoutTheWait) {
  Update();
  stream.Copy({slot}, {weights});
  EXPECT_EQ(Read(/*wait=*/false), -1);
}

TEST_F(OrderedStreamTest, CopiesOnTheStreamOfTheUpdates) {
  const DeviceRuntime::Stream updates = device->MakeStream();
  OrderedStream other(device, updates, device);
  const double value = ++step;
  device->Queued(updates, [this, value] { weights.fill_(value); });
  other.Copy({slot}, {weights});
  EXPECT_EQ(device->Current(), trainer);
  device->Finish(trainer);
  EXPECT_EQ(slot.item<double>(), -1);
  device->Finish(updates);
  EXPECT_EQ(slot.item<double>(), 1);
}

TEST_F(OrderedStreamTest, GateKeepsTheNextUpdateBehindACopyBesideTraining) {
  Update();
  EXPECT_TRUE(stream.CopyBeside({slot}, {weights}));
  stream.Gate();
  Update();
  device->Finish(trainer);  // as far as it may: the copy first
  EXPECT_EQ(weights.item<double>(), 2);
  EXPECT_EQ(Read(), 1);
}

TEST_F(OrderedStreamTest, WithoutTheGateAnUpdateOvertakesTheCopy) {
  Update();
  stream.CopyBeside({slot}, {weights});
  Update();
  device->Finish(trainer);
  EXPECT_EQ(Read(), 2);
}

TEST_F(OrderedStreamTest, CopyBesideTrainingComesAfterTheUpdatesBeforeIt) {
  Update();
  stream.CopyBeside({slot}, {weights});
  EXPECT_EQ(Read(), 1) << "the monitor's stream ran first";
}

TEST_F(OrderedStreamTest, ASlotThatWasDrainedMayBeFilledAgain) {
  Update();
  stream.Copy({slot}, {weights});
  device->SetCurrent(monitor);
  stream.WaitForCopy();
  device->Queued(monitor, [this] { seen.copy_(slot); });
  stream.Drain();
  device->SetCurrent(trainer);
  Update();
  stream.Copy({slot}, {weights});
  device->Finish(trainer);
  EXPECT_EQ(seen.item<double>(), 1);
  EXPECT_EQ(Read(), 2);
}

TEST_F(OrderedStreamTest, FinishesCopiesOfBothKinds) {
  at::Tensor other = at::full({}, -1.0, at::kDouble);
  Update();
  stream.Copy({slot}, {weights});
  stream.CopyBeside({other}, {weights});
  stream.FinishCopy();
  EXPECT_EQ(slot.item<double>(), 1);
  EXPECT_EQ(other.item<double>(), 1);
}

TEST_F(OrderedStreamTest, MakesNothingAfterItsCreation) {
  const size_t made = device->made();
  testing::FakeClock clock;
  for (int i = 0; i < 3; ++i) {
    Update();
    stream.Copy({slot}, {weights});
    stream.CopyBeside({slot}, {weights});
    stream.Gate();
    Read();
    clock.Advance(milliseconds(5));
    stream.WorkTime(clock);
    stream.Drain();
  }
  EXPECT_EQ(device->made(), made);
}

TEST_F(OrderedStreamTest, SettlesBothStreamsOfTheTrainer) {
  const DeviceRuntime::Stream updates = device->MakeStream();
  OrderedStream other(device, updates, device);
  int done = 0;
  device->Queued(trainer, [&] { ++done; });
  device->Queued(updates, [&] { ++done; });
  other.Settle();
  EXPECT_EQ(done, 2);
}

TEST_F(OrderedStreamTest, WorkIsTheTimeOfTheDevice) {
  testing::FakeClock clock;
  const auto read = [&] {
    clock.Advance(milliseconds(5));
    return stream.WorkTime(clock);
  };
  const auto begin = read();
  bool done = false;
  device->Queued(
      monitor, [&] { done = true; }, milliseconds(30));
  EXPECT_EQ(read() - begin, milliseconds(30));
  EXPECT_TRUE(done) << "no more than a quantum is queued ahead";
  // A rest is no work: the pacer reads before and after it.
  const auto before = read();
  device->Idle(milliseconds(70));
  const auto after = read();
  device->Queued(
      monitor, [] {}, milliseconds(10));
  EXPECT_EQ(after - before, milliseconds(70));
  EXPECT_EQ(read() - after, milliseconds(10));
}

TEST_F(OrderedStreamTest, WaitingForTheTrainerIsNoWork) {
  testing::FakeClock clock;
  const auto read = [&] {
    clock.Advance(milliseconds(5));
    return stream.WorkTime(clock);
  };
  const auto begin = read();
  device->Queued(
      trainer, [] {}, milliseconds(500));
  stream.Copy({slot}, {weights});
  device->SetCurrent(monitor);
  stream.WaitForCopy();
  device->Queued(
      monitor, [] {}, milliseconds(10));
  EXPECT_EQ(read() - begin, milliseconds(10));
}

TEST_F(OrderedStreamTest, SnapshotsInHostMemoryAreMeasuredOnADevice) {
  FromHostStream from_host(device);
  device->SetFreeBytes(100);
  EXPECT_EQ(from_host.FreeBytes(), 100);
  EXPECT_EQ(from_host.FreeBytesForCopies(), std::nullopt);
  from_host.EnterMonitorThread();
  const DeviceRuntime::Stream work = device->Current();
  EXPECT_NE(work, trainer);
  weights.fill_(3);
  EXPECT_FALSE(from_host.CopyBeside({slot}, {weights}));
  EXPECT_EQ(slot.item<double>(), 3);
  testing::FakeClock clock;
  const auto begin = from_host.WorkTime(clock);
  bool done = false;
  device->Queued(
      work, [&] { done = true; }, milliseconds(30));
  clock.Advance(milliseconds(5));
  EXPECT_EQ(from_host.WorkTime(clock) - begin, milliseconds(30));
  EXPECT_TRUE(done);
  device->SetFault(absl::UnavailableError("gone"));
  EXPECT_EQ(from_host.Fault(), absl::UnavailableError("gone"));
}

TEST_F(OrderedStreamTest, AsksTheDeviceNoOftenerThanEveryMillisecond) {
  testing::FakeClock clock;
  const auto begin = stream.WorkTime(clock);
  device->Queued(
      monitor, [] {}, milliseconds(30));
  EXPECT_EQ(stream.WorkTime(clock), begin);
}

TEST_F(OrderedStreamTest, MeasuringOnTheCpuCountsCpuTime) {
  OrderedStream cpu(device, std::nullopt, nullptr);
  testing::FakeClock clock;
  clock.Advance(milliseconds(7));
  EXPECT_EQ(cpu.WorkTime(clock), milliseconds(7));
}

TEST_F(OrderedStreamTest, TellsFaultsAndTheMemoryOfItsDevices) {
  auto other = std::make_shared<testing::FakeDevice>();
  OrderedStream two(device, std::nullopt, other);
  device->SetFreeBytes(100);
  other->SetFreeBytes(60);
  EXPECT_EQ(two.FreeBytes(), 60);
  EXPECT_EQ(two.FreeBytesForCopies(), 100);
  OrderedStream cpu(device, std::nullopt, nullptr);
  EXPECT_EQ(cpu.FreeBytes(), std::nullopt);
  EXPECT_EQ(cpu.FreeBytesForCopies(), 100);
  EXPECT_TRUE(two.Fault().ok());
  other->SetFault(absl::UnavailableError("gone"));
  EXPECT_EQ(two.Fault(), absl::UnavailableError("gone"));
}

}  // namespace ordered_stream_test
}  // namespace ptqwatch::internal
