#ifndef PTQWATCH_STAGING_SLOT_H_
#define PTQWATCH_STAGING_SLOT_H_

#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "handover/slot_page.h"
#include "snapshot/device_stream.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/snapshot.h"
#include "staging/shards.h"

namespace ptqwatch::internal {

/// The slot for one snapshot, as one half of a monitor sees it: its page, and its tensors. If the
/// halves are two processes, each has a Slot with the same page and the same memory.
class Slot {
 public:
  /// `page` must outlive this. `tensors`: one for each entry of the live table, contiguous.
  Slot(SlotPage* page, std::vector<at::Tensor> tensors) : page_(*page) {
    snapshot_.tensors = std::move(tensors);
  }
  /// For the measuring half, if it is a process of its own: `optimizer` copies the state that the
  /// trainer's half has left beside each snapshot.
  void ReadOptimizer(OptimizerStaging optimizer, std::shared_ptr<DeviceStream> stream) {
    optimizer_ = std::move(optimizer);
    stream_ = std::move(stream);
  }

  /// For the measuring half: the snapshots are those of ranks that have parts of the model, of
  /// which `page` is the first one's.
  void ReadShards(std::shared_ptr<Shards> shards) { shards_ = std::move(shards); }
  bool sharded() const { return shards_ != nullptr; }

  SlotPage& page() { return page_; }
  const OptimizerStaging& optimizer() const { return optimizer_; }
  /// Trainer's half: the memory of a slot that it has claimed.
  Snapshot& claimed() { return snapshot_; }

  /// Measuring half: the filled snapshot, or null. Moves a filled slot to Loading.
  const Snapshot* BeginLoading() noexcept {
    if (shards_ != nullptr ? !shards_->Begin() : !page_.BeginLoading()) return nullptr;
    snapshot_.header = page_.header;
    snapshot_.stall_seconds = page_.stall_seconds;
    if (stream_ != nullptr) optimizer_.Fill(*stream_, snapshot_.optimizer);
    return &snapshot_;
  }
  /// As those of SlotPage.
  void Release() noexcept { shards_ != nullptr ? shards_->Release() : page_.Release(); }
  void Done() noexcept { shards_ != nullptr ? shards_->Done() : page_.Done(); }
  void TakeOver() noexcept { shards_ != nullptr ? shards_->TakeOver() : page_.TakeOver(); }

 private:
  SlotPage& page_;
  Snapshot snapshot_;
  OptimizerStaging optimizer_;
  std::shared_ptr<Shards> shards_;
  std::shared_ptr<DeviceStream> stream_;  // null: the trainer's half writes the optimizer's state
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SLOT_H_
