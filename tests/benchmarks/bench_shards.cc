// The time to put a sharded model together on a host of many ranks.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/cleanup/cleanup.h"
#include "monitor/process_trainer.h"
#include "ptqwatch/function_subject.h"
#include "snapshot/tensor_table.h"
#include "staging/host_state.h"
#include "staging/shard_address.h"
#include "staging/whole_tensors.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kSize = 1024;

// A model of square matrices in the memory of ranks, which have rows or columns.
struct Sharded {
  Sharded(int64_t ranks, int64_t matrices, bool columns) {
    const int64_t part = kSize / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<NamedTensor> listed;
      for (int64_t i = 0; i < matrices; ++i) {
        std::vector<int64_t> sizes = {kSize, kSize};
        std::vector<int64_t> offset = {0, 0};
        sizes[columns ? 1 : 0] = part;
        offset[columns ? 1 : 0] = rank * part;
        listed.push_back(
            {"layers." + std::to_string(i), at::ones(sizes), true, {kSize, kSize}, offset});
      }
      const TensorTable table = MakeLiveTable(listed, Parts::kAllowed).value();
      auto [layout, bytes] = LayoutOf(table, listed);
      memory.push_back(std::make_unique<SharedMemory>(SharedMemory::Make(bytes, "", 1, 0).value()));
      layouts.push_back(std::make_unique<std::vector<SharedTensor>>(std::move(layout)));
      for (const NamedTensor& shared : memory.back()->Tensors(*layouts.back())) {
        at::Tensor(shared.tensor).fill_(1);  // so that the pages are there
      }
      parts.push_back({rank, memory.back().get(), layouts.back().get()});
    }
  }
  std::vector<std::unique_ptr<SharedMemory>> memory;
  std::vector<std::unique_ptr<std::vector<SharedTensor>>> layouts;
  std::vector<WholeTensors::Rank> parts;
};

void BM_Assemble(benchmark::State& state) {
  const Sharded model(state.range(0), /*matrices=*/32, state.range(1) != 0);
  const WholeTensors whole = WholeTensors::Make(model.parts).value();
  whole.Assemble();
  for (auto _ : state) whole.Assemble();
  state.SetBytesProcessed(state.iterations() * 32 * kSize * kSize * 4);
}
BENCHMARK(BM_Assemble)
    ->ArgNames({"ranks", "columns"})
    ->Args({1, 0})
    ->Args({8, 0})
    ->Args({8, 1})
    ->Args({64, 0})
    ->Args({64, 1})
    ->Unit(benchmark::kMillisecond);

// The same bytes from a rank of another host, through a file in the temporary directory.
void BM_Image(benchmark::State& state) {
  const Sharded model(1, /*matrices=*/32, /*columns=*/false);
  const std::string path = std::filesystem::temp_directory_path() / "ptqwatch_bench_image";
  const absl::Cleanup remove = [&] { std::filesystem::remove(path); };
  const HostKey key = KeyOf(*model.memory[0]);
  if (!WriteImage(path, *model.memory[0]).ok()) return state.SkipWithError("no file");
  const SharedMemory copy = MemoryOfImage(path, key).value();
  for (auto _ : state) {
    if (!WriteImage(path, *model.memory[0]).ok() || !ReadImage(path, key, copy).ok()) {
      return state.SkipWithError("no file");
    }
  }
  state.SetBytesProcessed(state.iterations() * 32 * kSize * kSize * 4);
}
BENCHMARK(BM_Image)->Unit(benchmark::kMillisecond);

// The same bytes by memcpy.
void BM_Copy(benchmark::State& state) {
  const std::vector<char> from(32 * kSize * kSize * 4, 1);
  std::vector<char> to(from.size(), 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(from.size()));
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMillisecond);

// A rank's step: due, which copies its part, or not.
void BM_Step(benchmark::State& state) {
  const bool due = state.range(0) != 0;
  const std::string directory = std::filesystem::temp_directory_path() / "ptqwatch_bench_step";
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(directory); };
  FunctionSubjectOptions model;
  for (int64_t i = 0; i < 32; ++i) {
    model.live.push_back({"layers." + std::to_string(i), at::ones({kSize, kSize}), true,
                          std::vector<int64_t>{8 * kSize, kSize}, std::vector<int64_t>{0, 0}});
  }
  MonitorOptions options;
  options.schedule = {.every = 1, .decay_density = 1};
  if (!due) options.schedule.every = int64_t{1} << 40;
  options.curvature.enabled = false;
  const auto trainer = ProcessTrainer::Create(MakeFunctionSubject(std::move(model)), options,
                                              {.shard = ShardPlace{"job", directory, 0, 8}})
                           .value();
  SlotPage& slot = trainer->page().slot;
  trainer->page().switches.nothing_to_measure = false;
  int64_t step = 0;
  for (auto _ : state) {
    trainer->OnStep({.step = ++step, .learning_rate = 1e-3});
    if (!due) continue;
    if (!slot.filled()) return state.SkipWithError("no snapshot");
    slot.Drop();
  }
  if (due) state.SetBytesProcessed(state.iterations() * 32 * kSize * kSize * 4);
}
BENCHMARK(BM_Step)->ArgName("due")->Arg(0);
BENCHMARK(BM_Step)->ArgName("due")->Arg(1)->Unit(benchmark::kMillisecond);

// Checks the parts of 64 ranks of a model of 7 billion parameters in 32 blocks.
void BM_Check(benchmark::State& state) {
  const Sharded model(64, /*matrices=*/288, /*columns=*/false);
  for (auto _ : state) benchmark::DoNotOptimize(WholeTensors::Make(model.parts).value());
}
BENCHMARK(BM_Check)->Unit(benchmark::kMillisecond);

// Reads the addresses of so many ranks.
void BM_Find(benchmark::State& state) {
  const std::string directory = std::filesystem::temp_directory_path() / "ptqwatch_bench_shards";
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(directory); };
  std::vector<std::unique_ptr<ShardAddress>> addresses;
  ShardPlace place{"job", directory, 0, state.range(0)};
  for (; place.rank < state.range(0); ++place.rank) {
    addresses.push_back(std::make_unique<ShardAddress>());
    if (!addresses.back()->Publish(place, 0).ok()) return state.SkipWithError("no address");
  }
  for (auto _ : state) benchmark::DoNotOptimize(FindShards(place));
}
BENCHMARK(BM_Find)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ptqwatch::internal

BENCHMARK_MAIN();
