#include "ptqwatch/run_page.h"

#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "feed/report_json.h"
#include "nlohmann/json.hpp"
#include "page/embedded_files.h"
#include "ptqwatch/status.h"

namespace ptqwatch {
namespace {

using internal::EmbeddedFiles;
using internal::StrCat;

constexpr size_t kMaxEvents = internal::RunFeed::kMaxEvents;  // as many as a server keeps

std::string Quoted(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Replaces a reference in the page with the content of the file.
void Inline(std::string& page, std::string_view reference, std::string_view open,
            std::string_view content, std::string_view close) {
  const size_t at = page.find(reference);
  if (at == std::string::npos) return;
  page.replace(at, reference.size(), StrCat(open, content, close));
}

}  // namespace

void RunPage::Add(const AnalyzedReport& report) {
  if (count_++ > 0) series_ += ",\n";
  series_ += internal::SeriesJson(report);
  newest_ = ToJson(report);
}

void RunPage::Add(const Event& event) {
  if (events_.size() >= kMaxEvents) events_.erase(events_.begin());
  events_.push_back(EventToJson(event));
}

std::string RunPage::Render(std::string_view name, const RunInfo& run, const MonitorStatus& status,
                            double time_unix_seconds) const {
  std::string events;
  for (const std::string& event : events_) events += StrCat(events.empty() ? "" : ",\n", event);
  std::string data =
      StrCat("{\"name\":", Quoted(name),
             ",\"time_unix_seconds\":", internal::StrFormat("%.3f", time_unix_seconds),
             ",\"status\":", StatusJson({.run = run, .monitor = status}), ",\"reports\":[", series_,
             "],\"newest\":", newest_.empty() ? "null" : newest_, ",\"events\":[", events, "]}");
  // In JSON, "<" appears only inside strings. Escaping it keeps a name from ending the script
  // element.
  absl::StrReplaceAll({{"<", "\\u003c"}}, &data);
  const auto& files = EmbeddedFiles();
  std::string page(files.at("index.html"));
  Inline(page, "<link rel=\"icon\" href=\"page/icon.svg\">", "",
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
         "'unsafe-inline'; style-src 'unsafe-inline'\">",
         "");
  Inline(page, "<link rel=\"stylesheet\" href=\"page/page.css\">", "<style>\n",
         files.at("page.css"), "</style>");
  Inline(page, "<script src=\"page/chart.js\" defer></script>", "", "", "");
  Inline(page, "<script src=\"page/page.js\" defer></script>", "", "", "");
  Inline(page, "</body>",
         StrCat("<script type=\"application/json\" id=\"data\">", data, "</script>\n<script>\n"),
         files.at("chart.js"),
         StrCat("</script>\n<script>\n", files.at("page.js"), "</script>\n</body>"));
  return page;
}

}  // namespace ptqwatch
