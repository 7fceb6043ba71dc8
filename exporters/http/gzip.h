#ifndef PTQWATCH_HTTP_GZIP_H_
#define PTQWATCH_HTTP_GZIP_H_

#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Compresses `bytes` to a gzip file (RFC 1952). Uses the fastest level unless `small`, because
/// pages are compressed beside a training run. Returns an empty string if memory is short.
std::string Gzip(std::string_view bytes, bool small = false);

/// Whether an Accept-Encoding header accepts gzip.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_GZIP_H_
