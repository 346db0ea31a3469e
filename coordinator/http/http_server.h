// The dashboard's side of the coordinator: pages, documents as JSON, events,
// actions and metrics over HTTP, on threads of its own (HttpServer); and its
// parts that need no socket: checks of the requests of browsers, and the
// tokens by which they act in the name of a principal (DashboardTokens).
#ifndef GAVEL_COORDINATOR_HTTP_HTTP_SERVER_H_
#define GAVEL_COORDINATOR_HTTP_HTTP_SERVER_H_

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/http/documents.h"
#include "coordinator/pages/pages.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// ---- Checks of what browsers send. Pure, thread-safe.

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

// ---- Tokens

// Random tokens of 256 bits, each for the key of the principal that asked for
// it. An action by a token is authorised as a request of that key, so it may do
// no more than the principal, and nothing once the principal is removed. Only
// hashes are kept. Thread-safe. `now` never falls.
class DashboardTokens {
 public:
  static constexpr double kValid_s = 12 * 3600;
  // Beyond, the oldest are forgotten: those of the same key first.
  static constexpr size_t kTokensMax = 1024;
  static constexpr size_t kTokensOfOneKeyMax = 16;

  // A new token: 64 hexadecimal digits. `ends_oldest`: whether the key's oldest
  // one had to end for it.
  std::string Make(Time now, const std::string& public_key,
                   bool* ends_oldest = nullptr);
  // Ends the tokens of all other keys.
  void EndUnless(const std::function<bool(const std::string& key)>& is_known);
  // The key of a token that is valid. Takes as long whichever token it is.
  std::optional<std::string> Find(Time now, std::string_view token) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Entry {
    Hash hash;
    std::string public_key;
    Time until = 0;
  };
  static Hash HashOf(std::string_view token);

  mutable std::mutex mutex_;    // guards the next
  std::vector<Entry> entries_;  // the oldest first
};

// ---- Pages

// "text/html; charset=utf-8", by the ending of the name.
std::string_view MediaTypeOf(std::string_view name);

// ---- The server

struct HttpTimes {
  double update_interval_s = 0.5;
  double comment_interval_s = 15;  // of a stream of events
  // For all of a request to arrive; the second while others wait.
  double request_s_max = 10;
  double request_s_max_busy = 1;
  // A peer that takes nothing of its answer for so long is cut.
  double stalled_s_max = 10;
};

struct HttpServerOptions {
  std::string address;  // "127.0.0.1:8080"; port 0: a free one
  // By which browsers reach it, where a proxy is in front; empty: the address.
  std::string url;
  bool has_keys = false;  // the coordinator's connections have keys
  std::span<const Page> pages;
  HttpTimes times;
};

// Answers on its own threads from Serve() until it is destroyed.
// docs/dashboard.md has the paths. Each connection carries one request. Borrows
// documents and tokens.
class HttpServer {
 public:
  // Requests that are worked on at once, and streams of events beside them.
  static constexpr size_t kRequestThreads = 16;
  static constexpr size_t kEventClientsMax = 64;
  // Connections that wait for a thread; further ones get 503.
  static constexpr size_t kWaitingMax = 128;
  // The bytes of a request with its headers, and of the body of an action.
  // httplib takes 8 KiB at most for the target and for each header.
  static constexpr size_t kRequestBytesMax = 16 * 1024;
  static constexpr size_t kBodyBytesMax = 4 * 1024;

  // Takes the address; connections wait until Serve(). INVALID_ARGUMENT: no
  // address. PERMISSION_DENIED: it is not loopback, and there are no keys.
  // ALREADY_EXISTS: the port is taken. Each names the remedy.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(
      const HttpServerOptions& options, Documents& documents,
      const DashboardTokens& tokens);
  ~HttpServer();

  // To be called once.
  void Serve();

  // The address of the first page, for browsers. Ends with "/".
  const std::string& url() const;
  int port() const;  // that was bound

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_HTTP_SERVER_H_
