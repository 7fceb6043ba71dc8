#ifndef PTQWATCH_JOURNAL_LINE_READER_H_
#define PTQWATCH_JOURNAL_LINE_READER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

struct LineHandlers {
  std::function<void(AnalyzedReport)> report;
  std::function<void(const Event&)> event;  ///< if empty, events are not even parsed
  std::function<void()> unreadable;         ///< a truncated, damaged or absurd line
  /// The journal was deleted, and another one has begun. Only JournalTail calls it. May be empty.
  std::function<void()> anew = {};
};

/// Splits the bytes of a journal into lines and parses them. Memory: one line, of at most
/// kMaxLineBytes (report_line.h).
class LineReader {
 public:
  explicit LineReader(LineHandlers handlers) : handlers_(std::move(handlers)) {}

  void Add(std::string_view bytes);
  /// Parses a complete last line even without its newline.
  void End() { EndLine(); }

 private:
  void Extend(std::string_view piece);
  void EndLine();

  const LineHandlers handlers_;
  std::string line_;
  bool too_long_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_LINE_READER_H_
