#include "http/live_page.h"

#include <string_view>

#include "absl/strings/match.h"
#include "base/digest.h"
#include "base/strings.h"
#include "http/gzip.h"
#include "page/embedded_files.h"

namespace ptqwatch::internal {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string ContentTypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

// A file of the page, compressed.
struct PageFile {
  std::string content_type;
  std::string_view bytes;
  std::string compressed;
  std::string etag;
};

HttpResponse Serve(const PageFile& file, const HttpRequest& request) {
  HttpResponse answer{.content_type = file.content_type,
                      .body = "",
                      .headers = {{"Cache-Control", "no-cache"},
                                  {"Content-Security-Policy", kPolicy},
                                  {"Cross-Origin-Resource-Policy", "same-origin"},
                                  {"ETag", file.etag},
                                  {"Vary", "Accept-Encoding"}},
                      .encoded = true};
  if (absl::StrContains(request.if_none_match, file.etag)) {
    answer.status = 304;
  } else if (!file.compressed.empty() && AcceptsGzip(request.accept_encoding)) {
    answer.body = file.compressed;
    answer.headers.emplace_back("Content-Encoding", "gzip");
  } else {
    answer.body = std::string(file.bytes);
  }
  return answer;
}

std::map<std::string_view, PageFile> ReadFiles() {
  std::map<std::string_view, PageFile> files;
  for (const auto& [name, bytes] : EmbeddedFiles()) {
    Digest digest;
    digest.Add(bytes);
    files[name] = {.content_type = ContentTypeOf(name),
                   .bytes = bytes,
                   .compressed = Gzip(bytes, /*small=*/true),
                   .etag = StrCat("\"", digest.Hex(), "\"")};
  }
  return files;
}

// Compressed at the first request, so that the server starts without delay.
const PageFile& FileOf(std::string_view name) {
  static const auto* const files = new std::map<std::string_view, PageFile>(ReadFiles());
  return files->at(name);
}

}  // namespace

HttpRoutes LivePageRoutes() {
  HttpRoutes routes;
  for (const auto& entry : EmbeddedFiles()) {
    const std::string_view name = entry.first;
    routes[name == "index.html" ? "/" : StrCat("/page/", name)] =
        [name](const HttpRequest& request) { return Serve(FileOf(name), request); };
  }
  return routes;
}

}  // namespace ptqwatch::internal
