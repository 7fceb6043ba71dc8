#include "base/server_hello.h"

#include "absl/status/status.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {

std::string HelloToJson(const ServerHello& hello) {
  return nlohmann::json{{"version", hello.version}, {"journal_schema", hello.journal_schema},
                        {"pid", hello.process},     {"http", hello.http},
                        {"grpc", hello.grpc},       {"error", hello.error}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<ServerHello> HelloFromJson(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, bool number) {
    const auto found = json.find(key);
    return found != json.end() && (number ? found->is_number_integer() : found->is_string());
  };
  if (!json.is_object() || !has("version", false) || !has("journal_schema", true) ||
      !has("pid", true) || !has("http", false) || !has("grpc", false) || !has("error", false)) {
    return absl::InvalidArgumentError(StrCat("the program printed '", line.substr(0, 80),
                                             "', so it is not a `ptqwatch` of this version"));
  }
  return ServerHello{.version = json["version"],
                     .journal_schema = json["journal_schema"],
                     .process = json["pid"],
                     .http = json["http"],
                     .grpc = json["grpc"],
                     .error = json["error"]};
}

}  // namespace ptqwatch::internal
