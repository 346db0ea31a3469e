// Checks of what browsers send, apart from sockets. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_HTTP_HTTP_CHECKS_H_
#define GAVEL_COORDINATOR_HTTP_HTTP_CHECKS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/messages.h"

namespace gavel {

// Host and port of "127.0.0.1:8080" or "[::1]:8080".
struct HttpAddress {
  std::string host;  // without brackets
  int port = 0;
};
// INVALID_ARGUMENT, with the form: it is none.
absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view text);

// Whether a request may name this host. A foreign page can make its own name
// lead to this machine (DNS rebinding), but neither an address nor
// "localhost" nor `own_name`, the host of --http-url.
bool IsHostAllowed(std::string_view host, std::string_view own_name);

// Whether a page of `origin` is one of the dashboard's at `host`.
bool IsSameOrigin(std::string_view origin, std::string_view host);

// The token of "Bearer TOKEN"; empty: the header has none.
std::string_view BearerToken(std::string_view authorization);

// "gavel.example.org" of "https://gavel.example.org:444/gavel". Empty: no URL.
std::string_view HostOfUrl(std::string_view url);

// Reads the command of {"action": "hold", "target": "12"}. INVALID_ARGUMENT
// names the mistake.
absl::StatusOr<CommandRequest> ParseAction(std::string_view json);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_HTTP_CHECKS_H_
