// The dashboard's side of the coordinator: pages, documents as JSON, events,
// actions and metrics over HTTP, on threads of its own.
#ifndef GAVEL_COORDINATOR_HTTP_HTTP_SERVER_H_
#define GAVEL_COORDINATOR_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/http/documents.h"
#include "coordinator/http/pages.h"
#include "coordinator/http/tokens.h"

namespace gavel {

struct HttpTimes {
  double update_interval_s = 1;
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

// Answers on its own threads until it is destroyed. docs/dashboard.md has the
// paths. Each connection carries one request. Borrows documents and tokens.
class HttpServer {
 public:
  // Requests that are worked on at once, and streams of events beside them.
  static constexpr size_t kRequestThreads = 16;
  static constexpr size_t kEventClientsMax = 64;
  // Connections that wait for a thread; further ones get 503.
  static constexpr size_t kWaitingMax = 128;
  // The bytes of a request with its headers, and of the body of an action.
  static constexpr size_t kRequestBytesMax = 16 * 1024;
  static constexpr size_t kBodyBytesMax = 4 * 1024;

  // INVALID_ARGUMENT: no address. PERMISSION_DENIED: it is not loopback, and
  // there are no keys. ALREADY_EXISTS: the port is taken. Each names the
  // remedy.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const HttpServerOptions& options, Documents& documents,
      const DashboardTokens& tokens);
  ~HttpServer();

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
