#include "coordinator/http/http_checks.h"

#include <arpa/inet.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

constexpr size_t kTargetBytesMax = 256;

// "[::1]" of "[::1]:8080", "localhost" of "localhost".
std::string_view WithoutPort(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos) return host;
  if (bracket != std::string_view::npos && colon < bracket) return host;
  return host.substr(0, colon);
}

bool IsAddress(std::string_view host) {
  unsigned char bytes[sizeof(in6_addr)];
  if (host.starts_with('[') && host.ends_with(']')) {
    return inet_pton(AF_INET6,
                     std::string(host.substr(1, host.size() - 2)).c_str(),
                     bytes) == 1;
  }
  return inet_pton(AF_INET, std::string(host).c_str(), bytes) == 1;
}

std::optional<CommandKind> KindOf(std::string_view action) {
  if (action == "undrain") return CommandKind::kResume;
  for (const CommandKind kind :
       {CommandKind::kHold, CommandKind::kRelease, CommandKind::kCancel,
        CommandKind::kRequeue, CommandKind::kDrain, CommandKind::kPolicy}) {
    if (action == CommandName(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view text) {
  const std::string_view host = WithoutPort(text);
  HttpAddress address;
  if (host.size() + 1 < text.size() &&
      absl::SimpleAtoi(ToAbsl(text.substr(host.size() + 1)), &address.port) &&
      address.port >= 0 && address.port <= 65535 && !host.empty()) {
    const bool brackets = host.starts_with('[') && host.ends_with(']');
    address.host = brackets ? host.substr(1, host.size() - 2) : host;
    return address;
  }
  return absl::InvalidArgumentError(StrCat(
      "--http \"", text, "\" is no address; give one such as 127.0.0.1:8080"));
}

bool IsHostAllowed(std::string_view host, std::string_view own_name) {
  const std::string_view name = WithoutPort(host);
  if (name.empty()) return false;
  return IsAddress(name) || absl::EqualsIgnoreCase(ToAbsl(name), "localhost") ||
         absl::EqualsIgnoreCase(ToAbsl(name), ToAbsl(own_name));
}

bool IsSameOrigin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    return absl::EqualsIgnoreCase(ToAbsl(origin.substr(scheme.size())),
                                  ToAbsl(host));
  }
  return false;
}

std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme))) {
    return "";
  }
  return authorization.substr(kScheme.size());
}

std::string_view HostOfUrl(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return "";
  const std::string_view rest = url.substr(scheme + 3);
  return WithoutPort(rest.substr(0, rest.find('/')));
}

absl::StatusOr<CommandRequest> ParseAction(std::string_view json) {
  const nlohmann::json body =
      nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("action") ||
      !body["action"].is_string()) {
    return absl::InvalidArgumentError(
        "the body is no action; send {\"action\": \"hold\", \"target\": "
        "\"12\"}");
  }
  const std::string action = body["action"];
  const std::optional<CommandKind> kind = KindOf(action);
  if (!kind.has_value()) {
    return absl::InvalidArgumentError(
        "there is no such action; send hold, release, cancel, requeue, drain, "
        "undrain or policy");
  }
  const nlohmann::json target = body.value("target", nlohmann::json());
  std::string text = target.is_string() ? target.get<std::string>() : "";
  if (target.is_number_unsigned()) text = StrCat(target.get<uint64_t>());
  if (text.empty() || text.size() > kTargetBytesMax) {
    return absl::InvalidArgumentError(
        StrCat("the target of ", action, " is missing or too long; name a ",
               "job by its id, a server, an accelerator or a policy"));
  }
  CommandRequest command;
  command.kind = *kind;
  if (*kind == CommandKind::kDrain || *kind == CommandKind::kResume ||
      *kind == CommandKind::kPolicy) {
    command.target = std::move(text);
    return command;
  }
  uint64_t id = 0;
  if (!absl::SimpleAtoi(text, &id) || id == 0) {
    return absl::InvalidArgumentError(
        StrCat("the target of ", action, " is no id of a job"));
  }
  command.job = JobId(id);
  return command;
}

}  // namespace gavel
