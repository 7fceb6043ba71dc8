#ifndef PTQWATCH_PROMETHEUS_REQUEST_FILTER_H_
#define PTQWATCH_PROMETHEUS_REQUEST_FILTER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Of a request what somebody looks at, piece by piece: headers that nobody asks for (Cookie,
/// Range, ...) are left out, however long they are. A line of the rest has at most 1 KiB: httplib
/// matches the request line and some headers against regular expressions, and the matcher of the
/// standard library recurses, about 330 bytes of stack a character. One thread at a time.
class RequestFilter {
 public:
  /// Appends to `out` what stays of `bytes`. False where a line is too long; no call after that.
  bool Pass(std::string_view bytes, std::string& out);

 private:
  enum class Part { kRequestLine, kName, kValue, kLeftOut, kBody };

  void EndName(char end, std::string& out);

  Part part_ = Part::kRequestLine;
  size_t line_ = 0;   // bytes of it that were passed on, or are held back in `name_`
  std::string name_;  // of the header that begins
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_REQUEST_FILTER_H_
