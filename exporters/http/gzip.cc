#include "http/gzip.h"

#include <zlib.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ptqwatch::internal {

std::string Gzip(std::string_view bytes, bool small) {
  constexpr int kGzipWindow = 15 + 16;
  constexpr int kMemoryLevel = 8;
  z_stream stream{};
  if (deflateInit2(&stream, small ? Z_BEST_COMPRESSION : Z_BEST_SPEED, Z_DEFLATED, kGzipWindow,
                   kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    return "";
  }
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  const int ended = deflate(&stream, Z_FINISH);
  compressed.resize(ended == Z_STREAM_END ? stream.total_out : 0);
  deflateEnd(&stream);
  return compressed;
}

bool AcceptsGzip(std::string_view accept_encoding) {
  for (const absl::string_view item :
       absl::StrSplit(absl::string_view(accept_encoding.data(), accept_encoding.size()), ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(item, ';');
    const absl::string_view name = absl::StripAsciiWhitespace(parts[0]);
    if (!absl::EqualsIgnoreCase(name, "gzip") && name != "*") continue;
    if (parts.size() == 1) return true;
    absl::string_view quality = absl::StripAsciiWhitespace(parts[1]);
    double weight = 1;
    return !absl::ConsumePrefix(&quality, "q=") || !absl::SimpleAtod(quality, &weight) ||
           weight > 0;
  }
  return false;
}

}  // namespace ptqwatch::internal
