#ifndef PTQWATCH_STAGING_HOST_STATE_H_
#define PTQWATCH_STAGING_HOST_STATE_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "handover/lr_tracker.h"
#include "handover/shared_text.h"
#include "handover/slot_page.h"
#include "handover/snapshot_header.h"
#include "ptqwatch/execution_context.h"
#include "staging/manifest.h"
#include "staging/shared_memory.h"

/// Hosts of which none holds the whole of a model tell each other this, by files in the directory
/// that they share: FarRanks is the end of the first host, which measures, and HostRelay that of
/// the others. The structs are written as they lie in memory, because all hosts run one build.
namespace ptqwatch::internal {

/// How long to wait for the next look at the files of other hosts, if something has just changed
/// and if nothing has.
inline constexpr std::chrono::milliseconds kSoonAmongHosts{10};
inline constexpr std::chrono::milliseconds kLaterAmongHosts{100};

/// 32 hexadecimal digits.
using HostKey = std::array<char, 32>;

/// A rank, as its host describes it.
struct RankState {
  int64_t rank = 0;
  HostKey memory{};  ///< KeyOf its memory, and so of its launch
  int64_t step = SlotPage::kNoStep;
  /// Number of its newest image: that of the snapshot that its slot holds, or 0, of the start.
  int64_t image = 0;
  int64_t answered = 0;  ///< the newest RankOrder::asked that it has answered, with its image
  int64_t result = 0;    ///< SnapshotResult of that
};

/// An order of the first host to a rank.
struct RankOrder {
  int64_t rank = 0;
  HostKey memory{};
  int64_t asked = 0;    ///< snapshots of the last step that were asked for
  int64_t freed = 0;    ///< number of the newest image that is no longer needed
  int64_t dropped = 0;  ///< the newest that was given up
};

/// The state of the first host, for all, as the page of a rank has it.
struct FirstHost {
  HostKey job{};      ///< of ShardPlace::job
  HostKey session{};  ///< of the process that measures
  int64_t ready = 0;
  int64_t failed = 0;  ///< for `reason`
  int64_t ended = 0;
  int64_t every = 0;
  int64_t stretch = 0;
  int64_t paused = 0;
  int64_t requests = 0;
  int64_t nothing_to_measure = 1;
  int64_t finished = 0;  ///< as Page::Answers has them, within the session
  int64_t finished_step = SlotPage::kNoStep;
  int64_t finished_first = 0;
  int64_t code = 0;
  SharedText reason{};
  int64_t past_known = 0;
  std::array<char, sizeof(LrTracker)> past{};
};

/// The beginning of the file of a host.
struct HostHead {
  HostKey session{};  ///< to which it is addressed
};

HostKey KeyOf(std::string_view text);
HostKey KeyOf(const SharedMemory& memory);

std::string FirstHostPath(const ShardPlace& place);
/// At the end of a host: removes the first host's file if that has ended, too, and no other host
/// has files for its session.
void RemoveIfLast(const ShardPlace& place, const HostKey& session) noexcept;
/// The directory of a host's files, for one process that measures.
std::string HostFolder(const ShardPlace& place, int64_t host, const HostKey& session);
std::string HostStatePath(const std::string& folder);
std::string ImagePath(const std::string& folder, int64_t rank, int64_t image);

/// Writes `bytes` to a file that appears as a whole. Errors name the path.
absl::Status WriteState(const std::string& path, std::string bytes);
/// DataLoss if the file is not one of this build with a head and rows of such sizes; NotFound.
absl::StatusOr<std::string> ReadState(const std::string& path, size_t head_bytes, size_t row_bytes);

template <class Head, class Row>
std::string BytesOf(const Head& head, const std::vector<Row>& rows) {
  static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<Row>);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
  return bytes;
}

template <class Head, class Row>
absl::StatusOr<std::pair<Head, std::vector<Row>>> ReadStateOf(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadState(path, sizeof(Head), sizeof(Row));
  if (!bytes.ok()) return bytes.status();
  std::pair<Head, std::vector<Row>> state;
  const char* const rows = bytes->data() + sizeof(Head);
  std::copy_n(bytes->data(), sizeof(Head), reinterpret_cast<char*>(&state.first));
  state.second.resize((bytes->size() - sizeof(Head)) / sizeof(Row));
  std::copy(rows, bytes->data() + bytes->size(), reinterpret_cast<char*>(state.second.data()));
  return state;
}

/// Writes the memory of a rank: its manifest, the header of its slot, and all that lies between.
/// The trainer must not fill the slot meanwhile. Cancelled once `cancel` is. Errors name the path.
absl::Status WriteImage(const std::string& path, const SharedMemory& memory,
                        const CancelToken& cancel = {});
/// Makes memory for a rank of another host by its image, which it reads. Errors are those of
/// ReadImage and of SharedMemory::Make.
absl::StatusOr<SharedMemory> MemoryOfImage(const std::string& path, const HostKey& memory,
                                           const CancelToken& cancel = {});
/// Reads an image into such memory, and returns the header. DataLoss if the file is not an image of
/// `memory`, or is cut off; Cancelled once `cancel` is; otherwise errors are the file system's.
/// They name the path.
absl::StatusOr<SnapshotHeader> ReadImage(const std::string& path, const HostKey& memory,
                                         const SharedMemory& to, const CancelToken& cancel = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_HOST_STATE_H_
