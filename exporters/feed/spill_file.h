#ifndef PTQWATCH_FEED_SPILL_FILE_H_
#define PTQWATCH_FEED_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "feed/shared_bytes.h"

namespace ptqwatch::internal {

/// Holds rarely read bytes in an unlinked temporary file in $TMPDIR, else /tmp. The file is created
/// on first use and disappears with this object. Not thread-safe.
class SpillFile {
 public:
  SpillFile() = default;
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Appends the pieces and returns the offset of the first one, or -1 if they cannot be written.
  int64_t Append(const std::vector<SharedBytes>& pieces);
  /// Null if the bytes cannot be read.
  SharedBytes Read(int64_t offset, size_t bytes) const;
  /// Frees the disk blocks of bytes that will not be read again.
  void Forget(int64_t offset, int64_t bytes);

 private:
  int descriptor_ = -1;
  int64_t end_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_SPILL_FILE_H_
