#ifndef PTQWATCH_TRAJECTORY_HUB_CACHE_H_
#define PTQWATCH_TRAJECTORY_HUB_CACHE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// A revision of a model in the cache of huggingface_hub: CACHE/refs/REVISION holds the commit
/// whose files are in CACHE/snapshots/COMMIT.
struct HubRevision {
  std::string name;    ///< "step512"; the path below refs
  std::string folder;  ///< of the snapshot, which may not have been downloaded
};

/// Whether a folder is that of a model in a cache, "models--ORG--NAME".
bool IsHubCache(const std::string& folder);
/// The revisions of a cache, sorted by name. The status of errno names the path.
absl::StatusOr<std::vector<HubRevision>> RevisionsOf(const std::string& cache);
/// The snapshot that a file below `refs` refers to; empty if `path` is no such file.
std::string SnapshotOfRef(const std::string& path);
/// The names of the revisions whose snapshot is `folder`; empty outside of a cache.
std::vector<std::string> RevisionNamesOf(const std::string& folder);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_HUB_CACHE_H_
