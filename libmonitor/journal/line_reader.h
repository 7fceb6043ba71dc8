#ifndef PTQWATCH_JOURNAL_LINE_READER_H_
#define PTQWATCH_JOURNAL_LINE_READER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Who gets the lines of a journal.
struct LineHandlers {
  std::function<void(AnalyzedReport)> report;
  std::function<void(const Event&)> event;  ///< may be empty: events are not even parsed
  std::function<void()> unreadable;         ///< a line that is cut off, damaged or absurd
};

/// Cuts the bytes of a journal into lines and parses them. Memory: a line, of at most 16 MiB.
class LineReader {
 public:
  explicit LineReader(LineHandlers handlers) : handlers_(std::move(handlers)) {}

  void Add(std::string_view bytes);
  /// A whole last line counts even without its newline.
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
