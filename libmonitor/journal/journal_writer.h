#ifndef PTQWATCH_JOURNAL_JOURNAL_WRITER_H_
#define PTQWATCH_JOURNAL_JOURNAL_WRITER_H_

#include <unistd.h>

#include <cstddef>
#include <memory>

#include "journal/journal_file.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Number of lines that may wait for the disk.
inline constexpr size_t kJournalQueue = 256;

struct JournalLimits {
  int64_t part_bytes = int64_t{64} << 20;  ///< a larger part is closed
  int older_parts = 64;                    ///< parts kept beside journal.jsonl
};

/// Keeps the journal of a run directory, `journal.jsonl` in RunInfo::run_dir: a line of JSON for
/// each report (ReportLine) and each event. Monitor::Create adds it if run_dir is set.
///
/// Readers never see an incomplete line: a line truncated by a crash or a full disk is completed or
/// removed. Writing happens on a separate thread. Lines that cannot be written are kept, up to
/// kJournalQueue, and retried with the next line and at Stop; if they are still not written then,
/// they are counted as dropped. Start fails if the file cannot be opened or another monitor is
/// writing it.
///
/// The newest lines are in `journal.jsonl`. A full file becomes one of the older parts,
/// `journal-000001.jsonl` and so on; the oldest parts beyond `older_parts` are removed.
///
/// `write` is write(2); tests replace it to simulate a full disk or a hanging one.
std::unique_ptr<Exporter> MakeJournalWriter(WriteFunction write = ::write,
                                            JournalLimits limits = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_WRITER_H_
