#ifndef PTQWATCH_HTTP_GZIP_H_
#define PTQWATCH_HTTP_GZIP_H_

#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// `bytes` as a gzip file (RFC 1952), at the fastest level unless `small`: pages are compressed
/// beside a training run. Empty where memory is short.
std::string Gzip(std::string_view bytes, bool small = false);

/// Whether an Accept-Encoding header takes gzip.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_GZIP_H_
