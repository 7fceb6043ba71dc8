#ifndef PTQWATCH_JOURNAL_JOURNAL_WRITER_H_
#define PTQWATCH_JOURNAL_JOURNAL_WRITER_H_

#include <unistd.h>

#include <cstddef>
#include <memory>

#include "journal/journal_file.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Lines that wait for the disk.
inline constexpr size_t kJournalQueue = 256;

/// How large a journal becomes.
struct JournalLimits {
  int64_t part_bytes = int64_t{64} << 20;  ///< then the next part begins
  int older_parts = 64;                    ///< that are kept beside journal.jsonl
};

/// Keeps the journal of a run directory, `journal.jsonl` in RunInfo::run_dir: a line of JSON for
/// each report and each event. Monitor::Create adds it wherever run_dir is set.
///
/// Readers see a line whole or not at all: one that a crash or a full disk cut off is completed or
/// removed. Writing happens on a thread of its own. Lines that cannot be written are kept, up to
/// kJournalQueue, retried with the next one and at Stop, and counted as dropped when they are given
/// up. Start fails where the file cannot be opened or another monitor is writing it.
///
/// The newest lines are in `journal.jsonl`. When that has its full size it becomes one of the older
/// parts, `journal-000001.jsonl` and so on, of which the oldest are removed beyond a number.
///
/// `write` is write(2); tests replace it to fill a disk or to make it hang.
std::unique_ptr<Exporter> MakeJournalWriter(WriteFunction write = ::write,
                                            JournalLimits limits = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_WRITER_H_
