#ifndef PTQWATCH_BASE_SPILL_FILE_H_
#define PTQWATCH_BASE_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shared_bytes.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Bytes that are seldom read, in a file without a name: in $TMPDIR, else /tmp. It is made when it
/// is first needed and ends with this object. Not thread-safe.
class PTQWATCH_EXPORT SpillFile {
 public:
  SpillFile() = default;
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Where the pieces, one after the other, begin in the file; -1 where they cannot be written.
  int64_t Append(const std::vector<SharedBytes>& pieces);
  /// Null where they cannot be read.
  SharedBytes Read(int64_t offset, size_t bytes) const;
  /// They will not be read any more: gives their blocks back.
  void Forget(int64_t offset, int64_t bytes);

 private:
  int descriptor_ = -1;
  int64_t end_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_SPILL_FILE_H_
