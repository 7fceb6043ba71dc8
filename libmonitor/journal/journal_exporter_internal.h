#ifndef PTQWATCH_JOURNAL_JOURNAL_EXPORTER_INTERNAL_H_
#define PTQWATCH_JOURNAL_JOURNAL_EXPORTER_INTERNAL_H_

#include <cstddef>
#include <memory>

#include "journal/journal_file.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

inline constexpr size_t kJournalQueue = 256;

/// MakeJournalExporter with another write(2): how tests fill a disk or make it hang.
std::unique_ptr<Exporter> MakeJournalExporter(WriteFunction write);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_EXPORTER_INTERNAL_H_
