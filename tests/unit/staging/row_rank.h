#ifndef PTQWATCH_TESTS_UNIT_STAGING_ROW_RANK_H_
#define PTQWATCH_TESTS_UNIT_STAGING_ROW_RANK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/ops/full.h"
#include "snapshot/tensor_table.h"
#include "staging/manifest.h"
#include "staging/shard_address.h"
#include "staging/shared_memory.h"

namespace ptqwatch::internal {

/// A rank with one row of a matrix, as its trainer's half leaves it.
struct RowRank {
  RowRank(const ShardPlace& place_in, int64_t ranks, const std::string& schedule)
      : place(place_in) {
    const NamedTensor row{"w", at::full({1, 4}, -1.0F), true, {ranks, 4}, {place.rank, 0}};
    manifest.schedule = schedule;
    manifest.shard = place;
    int64_t bytes = 0;
    std::tie(manifest.layout, bytes) = LayoutOf(*MakeLiveTable({row}, Parts::kAllowed), {row});
    memory = std::make_shared<SharedMemory>(
        *SharedMemory::Make(bytes, ToJson(manifest), /*every=*/1, /*stretch=*/0));
    layout = manifest.layout;
  }

  // OnStep of a step that takes a snapshot unless the slot is taken; the weights are the step.
  bool Take(int64_t step, SnapshotTrigger trigger = SnapshotTrigger::kInterval) {
    Step(step);
    if (!page().slot.Claim()) return false;
    Fill(static_cast<double>(step));
    page().slot.header = {.info = {.step = step}, .trigger = trigger, .pass = pass};
    page().slot.Offer();
    return true;
  }
  void Fill(double value) { memory->Tensors(layout)[0].tensor.fill_(value); }
  void Step(int64_t step) { page().board.OnStep({.step = step}, LrPhase::kStable, 0); }
  Page& page() const { return memory->page(); }

  int64_t pass = 0;  // SnapshotHeader::pass of the next snapshot
  ShardPlace place;
  Manifest manifest;
  std::shared_ptr<SharedMemory> memory;
  std::vector<SharedTensor> layout;
  ShardAddress address;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TESTS_UNIT_STAGING_ROW_RANK_H_
