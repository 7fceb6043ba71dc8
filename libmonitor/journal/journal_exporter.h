#ifndef PTQWATCH_JOURNAL_JOURNAL_EXPORTER_H_
#define PTQWATCH_JOURNAL_JOURNAL_EXPORTER_H_

#include <memory>

#include "ptqwatch/exporter.h"

namespace ptqwatch {

/// Appends each report as one line of JSON to `journal.jsonl` in MonitorOptions::run_dir. A line is
/// written whole or not at all as far as readers can tell: one cut off by a crash or a full disk is
/// completed or removed, and readers skip it. Writing happens on a thread of its own; reports that
/// cannot be written are kept (up to 256), retried with the next one and at Stop, and counted when
/// they are given up.
std::unique_ptr<Exporter> MakeJournalExporter();

}  // namespace ptqwatch

#endif  // PTQWATCH_JOURNAL_JOURNAL_EXPORTER_H_
