#include "coordinator/http/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/http/connections.h"
#include "coordinator/http/documents.h"
#include "core/status.h"
#include "core/text.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"
#include "runtime/transport/dealer_router.h"
#include "sodium.h"

namespace gavel {

// ---- Checks of what browsers send

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

// "12", or "42_7" for an element of an array.
static bool ReadJob(std::string_view text, DocumentRequest* read) {
  uint64_t id = 0;
  const size_t underscore = text.find('_');
  if (underscore != std::string_view::npos) {
    uint64_t index = 0;
    if (!absl::SimpleAtoi(ToAbsl(text.substr(underscore + 1)), &index)) {
      return false;
    }
    read->array_index = index;
  }
  if (!absl::SimpleAtoi(ToAbsl(text.substr(0, underscore)), &id) || id == 0) {
    return false;
  }
  read->job = JobId(id);
  return true;
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
  DocumentRequest job;
  if (!ReadJob(text, &job)) {
    return absl::InvalidArgumentError(
        StrCat("the target of ", action, " is no id of a job, as 12 or 42_7"));
  }
  command.job = job.job;
  if (job.array_index) command.elements = StrCat(*job.array_index);
  return command;
}

// ---- Tokens

DashboardTokens::Hash DashboardTokens::HashOf(std::string_view token) {
  Hash hash{};
  crypto_generichash(hash.data(), hash.size(),
                     reinterpret_cast<const unsigned char*>(token.data()),
                     token.size(), nullptr, 0);
  return hash;
}

std::string DashboardTokens::Make(Time now, const std::string& public_key,
                                  bool* ends_oldest) {
  std::array<unsigned char, 32> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  std::string token(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(token.data(), token.size(), bytes.data(), bytes.size());
  token.pop_back();

  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& one) { return one.until <= now; });
  const auto of_key = [&](const Entry& one) {
    return one.public_key == public_key;
  };
  const bool full = static_cast<size_t>(std::ranges::count_if(
                        entries_, of_key)) >= kTokensOfOneKeyMax;
  if (full) entries_.erase(std::ranges::find_if(entries_, of_key));
  if (ends_oldest != nullptr) *ends_oldest = full;
  if (entries_.size() >= kTokensMax) entries_.erase(entries_.begin());
  entries_.push_back({HashOf(token), public_key, now + kValid_s});
  return token;
}

void DashboardTokens::EndUnless(
    const std::function<bool(const std::string& key)>& is_known) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_,
                [&](const Entry& one) { return !is_known(one.public_key); });
}

std::optional<std::string> DashboardTokens::Find(Time now,
                                                 std::string_view token) const {
  const Hash hash = HashOf(token);
  const std::lock_guard lock(mutex_);
  const Entry* found = nullptr;
  for (const Entry& one : entries_) {
    const bool same =
        sodium_memcmp(one.hash.data(), hash.data(), hash.size()) == 0;
    if (same) found = &one;
  }
  if (found == nullptr || found->until <= now) return std::nullopt;
  return found->public_key;
}

// ---- Pages

std::string_view MediaTypeOf(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".json", "application/json"}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

// ---- The server

namespace {

using httplib::Request;
using httplib::Response;

constexpr char kJson[] = "application/json";
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr int kBacklog = 128;
constexpr char kRetryAfter_s[] = "1";
// Between two looks at whether a watcher is still there.
constexpr double kWatcherLook_s = 1;
constexpr size_t kFilterBytesMax = 128;

constexpr char kRefusal[] =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    "{\"error\":\"too many connections; retry later\"}";

int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

void Refuse(int code, std::string_view why, Response& response) {
  nlohmann::json body;
  body["error"] = why;
  response.status = code;
  if (code == 429 || code == 503) {
    response.set_header("Retry-After", kRetryAfter_s);
  }
  if (code == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(
      body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      kJson);
}

void Refuse(const absl::Status& why, Response& response) {
  Refuse(CodeOf(why), ToStd(why.message()), response);
}

void Give(std::string_view body, const char* type, Response& response) {
  response.status = 200;
  response.set_content(body.data(), body.size(), type);
}

// A number of the query; `value` as it was where the query has none.
template <class T>
absl::Status ReadNumber(const Request& request, const char* name, T min, T max,
                        T* value) {
  if (!request.has_param(name)) return absl::OkStatus();
  uint64_t read = 0;
  if (!absl::SimpleAtoi(request.get_param_value(name), &read) || read < min ||
      read > max) {
    return absl::InvalidArgumentError(
        StrCat(name, " is no number from ", min, " to ", max));
  }
  *value = static_cast<T>(read);
  return absl::OkStatus();
}

absl::Status ReadText(const Request& request, const char* name,
                      std::string* value) {
  if (!request.has_param(name)) return absl::OkStatus();
  *value = request.get_param_value(name);
  const bool is_text = value->find('\0') == std::string::npos;
  if (is_text && value->size() <= kFilterBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      name, " is longer than ", kFilterBytesMax, " characters, or no text"));
}

// The query has no other keys: a misspelt filter would give all rows.
absl::Status CheckKeys(const Request& request,
                       const std::vector<std::string>& known) {
  for (const auto& [key, value] : request.params) {
    if (std::ranges::find(known, key) != known.end()) continue;
    return absl::InvalidArgumentError(
        StrCat("the query of ", request.path, " has no key \"",
               key.substr(0, kFilterBytesMax), "\"; ",
               known.empty() ? "it has none"
                             : StrCat("it has ", absl::StrJoin(known, ", "))));
  }
  return absl::OkStatus();
}

// The document of a path below /api/ with its query. NOT_FOUND: there is none.
absl::StatusOr<DocumentRequest> ReadRequest(const Request& request) {
  static const std::map<std::string_view, DocumentKind> kPaths = {
      {"/api/status", DocumentKind::kStatus},
      {"/api/nodes", DocumentKind::kNodes},
      {"/api/jobs", DocumentKind::kJobs},
      {"/api/fairness", DocumentKind::kFairness},
      {"/api/policy", DocumentKind::kPolicy},
      {"/api/apps", DocumentKind::kApps},
      {"/metrics", DocumentKind::kMetrics},
      {"/healthz", DocumentKind::kStatus}};
  static const std::map<std::string_view, DocumentKind> kOfJob = {
      {"", DocumentKind::kJob},
      {"/log", DocumentKind::kLog},
      {"/loss", DocumentKind::kLoss}};
  constexpr std::string_view kJobPath = "/api/job/";

  DocumentRequest read;
  const std::string_view path = request.path;
  if (const auto known = kPaths.find(path); known != kPaths.end()) {
    read.kind = known->second;
  } else if (path.starts_with(kJobPath)) {
    const std::string_view rest = path.substr(kJobPath.size());
    const size_t slash = std::min(rest.find('/'), rest.size());
    const auto of_job = kOfJob.find(rest.substr(slash));
    if (of_job == kOfJob.end() || !ReadJob(rest.substr(0, slash), &read)) {
      return absl::NotFoundError("there is no such document of a job");
    }
    read.kind = of_job->second;
  } else {
    return absl::NotFoundError("there is nothing at this path");
  }
  std::vector<std::string> keys;
  if (read.kind == DocumentKind::kJobs) {
    keys = {"state", "user", "app", "cursor", "limit"};
  } else if (read.kind == DocumentKind::kPolicy) {
    keys = {"preview"};
  } else if (read.kind == DocumentKind::kLog) {
    keys = {"tail"};
  }
  GAVEL_RETURN_IF_ERROR(CheckKeys(request, keys));
  if (read.kind == DocumentKind::kJobs) {
    std::string states;
    GAVEL_RETURN_IF_ERROR(ReadText(request, "state", &states));
    GAVEL_RETURN_IF_ERROR(ReadText(request, "user", &read.user));
    GAVEL_RETURN_IF_ERROR(ReadText(request, "app", &read.app));
    GAVEL_RETURN_IF_ERROR(
        ReadNumber<uint64_t>(request, "cursor", 0, UINT64_MAX, &read.cursor));
    GAVEL_RETURN_IF_ERROR(ReadNumber<size_t>(
        request, "limit", 1, DocumentRequest::kRowsMax, &read.limit));
    read.states = absl::StrSplit(states, ',', absl::SkipEmpty());
  } else if (read.kind == DocumentKind::kPolicy &&
             request.has_param("preview")) {
    read.kind = DocumentKind::kPreview;
    GAVEL_RETURN_IF_ERROR(ReadText(request, "preview", &read.name));
  } else if (read.kind == DocumentKind::kLog) {
    GAVEL_RETURN_IF_ERROR(ReadNumber<size_t>(
        request, "tail", 1, DocumentRequest::kTailMax, &read.tail));
  }
  return read;
}

std::string MediaTypeOfContent(const Request& request) {
  const std::string type = request.get_header_value("Content-Type");
  return std::string(
      absl::StripAsciiWhitespace(type.substr(0, type.find(';'))));
}

// Refuses actions of pages of other sites, before the body is read.
absl::Status CheckPost(const Request& request) {
  const std::string origin = request.get_header_value("Origin");
  if (request.has_header("Origin") &&
      !IsSameOrigin(origin, request.get_header_value("Host"))) {
    return absl::PermissionDeniedError(
        "a page of another site may not act here; behind a proxy, let it pass "
        "the Host header on");
  }
  if (!absl::EqualsIgnoreCase(MediaTypeOfContent(request), kJson) ||
      request.has_header("Content-Encoding")) {
    return absl::InvalidArgumentError(
        "an action is of Content-Type application/json, and not encoded");
  }
  uint64_t bytes = 0;
  if (request.has_header("Transfer-Encoding") ||
      !absl::SimpleAtoi(request.get_header_value("Content-Length"), &bytes) ||
      bytes > HttpServer::kBodyBytesMax) {
    return absl::InvalidArgumentError(
        StrCat("an action has a Content-Length of at most ",
               HttpServer::kBodyBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

// With the connections of ours: see BoundedStream.
class BoundedServer final : public httplib::Server {
 public:
  BoundedServer(const HttpTimes& times, std::atomic<bool>& stopping) {
    limits_.times = times;
    limits_.is_stopping = [&stopping] { return stopping.load(); };
    limits_.is_busy = [this] { return pool_ != nullptr && pool_->is_busy(); };
    new_task_queue = [this] {
      pool_ = new ConnectionPool(
          HttpServer::kRequestThreads + HttpServer::kEventClientsMax,
          HttpServer::kWaitingMax);
      return pool_;
    };
  }
  // httplib's own backlog is 5.
  void LengthenBacklog() { ::listen(svr_sock_, kBacklog); }
  // Gives the address back where nothing was served: httplib closes a socket
  // only once it has served.
  void StopListening() {
    const socket_t socket = svr_sock_.exchange(INVALID_SOCKET);
    if (socket != INVALID_SOCKET) close(socket);
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    if (ConnectionPool::is_refusing()) {
      send(socket, kRefusal, sizeof kRefusal - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      BoundedStream stream(socket, limits_);
      bool closed = false;
      process_request(stream, /*close_connection=*/true, closed, AskForGzip);
      stream.Linger();
    }
    close(socket);
    return true;
  }

  // httplib would rather compress by Brotli, at its highest quality: that takes
  // twenty times as long as gzip.
  static void AskForGzip(Request& request) {
    const bool gzip =
        absl::StrContains(request.get_header_value("Accept-Encoding"), "gzip");
    request.headers.erase("Accept-Encoding");
    if (gzip) request.headers.emplace("Accept-Encoding", "gzip");
  }

  BoundedStream::Limits limits_;
  ConnectionPool* pool_ = nullptr;  // httplib's, while it listens
};

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& given, Documents& of,
       const DashboardTokens& valid)
      : options(given),
        own_name(HostOfUrl(given.url)),
        documents(of),
        tokens(valid),
        shared(of),
        events(shared, given.times.update_interval_s, kEventClientsMax),
        server(given.times, stopping) {
    for (const Page& page : given.pages) {
      pages[StrCat("/", page.name)] = &page;
      if (page.name == "index.html") pages["/"] = &page;
    }
    server.set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'self'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'; object-src 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"X-Frame-Options", "DENY"},
         {"Referrer-Policy", "no-referrer"},
         {"Cross-Origin-Resource-Policy", "same-origin"},
         {"Cache-Control", "no-store"}});
    // Only SO_REUSEADDR: with httplib's own SO_REUSEPORT two servers would
    // share a port in silence.
    server.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    server.set_payload_max_length(kBodyBytesMax);
    server.set_tcp_nodelay(true);
    server.set_pre_routing_handler(
        [this](const Request& request, Response& response) {
          return Route(request, response)
                     ? httplib::Server::HandlerResponse::Handled
                     : httplib::Server::HandlerResponse::Unhandled;
        });
    server.Post("/api/action",
                [this](const Request& request, Response& response) {
                  Act(request, response);
                });
    server.set_error_handler(
        httplib::Server::Handler([](const Request&, Response& response) {
          if (!response.body.empty()) return;
          Refuse(response.status, "this request can't be answered", response);
        }));
    server.set_exception_handler(
        [](const Request&, Response& response, const std::exception_ptr&) {
          Refuse(500, "the dashboard failed to answer", response);
        });
  }

  ~Impl() {
    stopping = true;
    events.Stop();
    server.stop();
    if (listener.joinable()) {
      listener.join();
    } else {
      server.StopListening();
    }
  }

  absl::Status Listen() {
    GAVEL_ASSIGN_OR_RETURN(HttpAddress address,
                           ParseHttpAddress(options.address));
    if (!options.url.empty() && own_name.empty()) {
      return absl::InvalidArgumentError(
          StrCat("--http-url \"", options.url,
                 "\" is no URL; give one such as https://gavel.example.org"));
    }
    if (!options.has_keys && !IsLoopback(options.address)) {
      return absl::PermissionDeniedError(
          StrCat("--http ", options.address,
                 " is not of this machine alone, and without keys everybody "
                 "who reaches it may act; listen on 127.0.0.1 and use `ssh "
                 "-L`, or give the coordinator keys"));
    }
    errno = 0;
    if (address.port == 0) {
      address.port = server.bind_to_any_port(address.host);
    } else if (!server.bind_to_port(address.host, address.port)) {
      address.port = -1;
    }
    if (address.port < 0) return NotBound(errno);
    port = address.port;
    server.LengthenBacklog();
    url = options.url;
    if (url.empty()) {
      const bool is_v6 = address.host.find(':') != std::string::npos;
      url = StrCat("http://",
                   is_v6 ? StrCat("[", address.host, "]") : address.host, ":",
                   address.port);
    }
    if (!url.ends_with('/')) url += '/';
    return absl::OkStatus();
  }

  void Serve() {
    listener = std::thread([this] { server.listen_after_bind(); });
    // Before that it can't be stopped.
    while (!server.is_running()) std::this_thread::yield();
  }

  absl::Status NotBound(int error) const {
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(
          StrCat("--http ", options.address,
                 ": another program listens there; end it, or give another "
                 "port"));
    }
    return absl::InvalidArgumentError(StrCat(
        "--http ", options.address, " can't be listened on",
        error == 0 ? std::string() : StrCat(" (", std::strerror(error), ")"),
        "; give an address of this machine"));
  }

  // False: an action, whose body is to be read.
  bool Route(const Request& request, Response& response) {
    ++requests;
    if (request.get_header_value_count("Host") != 1 ||
        !IsHostAllowed(request.get_header_value("Host"), own_name)) {
      Refuse(403,
             "this name is not the dashboard's; use its address, or start the "
             "coordinator with --http-url",
             response);
    } else if (request.has_header("Range")) {
      Refuse(416, "parts of documents are not given", response);
    } else if (request.method == "POST" && request.path == "/api/action") {
      return !MayRead(request, response);
    } else if (request.method != "GET" && request.method != "HEAD") {
      Refuse(405, "only GET, and POST of /api/action", response);
    } else if (request.path == "/api/events") {
      Stream(response);
    } else if (const auto page = pages.find(request.path);
               page != pages.end()) {
      Give(page->second->bytes,
           std::string(MediaTypeOf(page->second->name)).c_str(), response);
    } else {
      GiveDocument(request, response);
    }
    return true;
  }

  bool MayRead(const Request& request, Response& response) {
    absl::Status good = CheckPost(request);
    if (good.ok()) good = KeyOf(request).status();
    if (good.ok()) return true;
    Refuse(good, response);
    return false;
  }

  // The key for which the request's token stands.
  absl::StatusOr<std::string> KeyOf(const Request& request) const {
    std::optional<std::string> key = tokens.Find(
        MonotonicNow(), BearerToken(request.get_header_value("Authorization")));
    if (key.has_value()) return *std::move(key);
    return absl::UnauthenticatedError(
        "the token is missing, unknown or older than twelve hours; `gavel "
        "dashboard` gives a new link");
  }

  void GiveDocument(const Request& request, Response& response) {
    absl::StatusOr<DocumentRequest> read = ReadRequest(request);
    if (!read.ok()) return Refuse(read.status(), response);
    read->address = AddressOf(request);
    if (request.has_header("Authorization")) {
      absl::StatusOr<std::string> key = KeyOf(request);
      if (!key.ok()) return Refuse(key.status(), response);
      read->key = *std::move(key);
    } else if (read->kind == DocumentKind::kPreview) {
      return Refuse(403,
                    "a preview solves a policy, so it needs a token; `gavel "
                    "dashboard` gives a link with one",
                    response);
    }
    const SharedDocuments::Shared document = shared.Get(*read);
    if (!document->ok()) return Refuse(document->status(), response);
    if (request.path == "/healthz") return Give("ok\n", "text/plain", response);
    if (read->kind != DocumentKind::kMetrics) {
      return Give(**document, kJson, response);
    }
    Give(StrCat(**document, OwnMetrics()), kPrometheusText, response);
  }

  std::string OwnMetrics() const {
    return StrCat(
        "# HELP gavel_http_requests_total Requests over HTTP.\n"
        "# TYPE gavel_http_requests_total counter\n"
        "gavel_http_requests_total ",
        requests.load(),
        "\n# HELP gavel_http_watchers Streams of events that are open.\n"
        "# TYPE gavel_http_watchers gauge\n"
        "gavel_http_watchers ",
        events.watchers(), "\n");
  }

  void Act(const Request& request, Response& response) {
    const absl::StatusOr<std::string> key = KeyOf(request);
    if (!key.ok()) return Refuse(key.status(), response);
    const absl::StatusOr<CommandRequest> command = ParseAction(request.body);
    if (!command.ok()) return Refuse(command.status(), response);
    const absl::Status done = documents.Act(*key, AddressOf(request), *command);
    shared.Forget();
    if (!done.ok()) return Refuse(done, response);
    Give("{\"done\":true}", kJson, response);
  }

  void Stream(Response& response) {
    const std::optional<uint64_t> begin = events.Enter();
    if (!begin.has_value()) {
      return Refuse(503, "too many watch already; retry later", response);
    }
    response.status = 200;
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, seen = *begin, quiet_since = MonotonicNow()](
            size_t, httplib::DataSink& sink) mutable {
          const auto event = events.Next(seen, kWatcherLook_s);
          if (stopping || events.is_lost() || !sink.is_writable()) return false;
          std::string text;
          if (event != nullptr) {
            seen = event->seq;
            text = event->text;
          } else if (MonotonicNow() - quiet_since >=
                     options.times.comment_interval_s) {
            text = ": quiet\n\n";
          }
          if (text.empty()) return true;
          quiet_since = MonotonicNow();
          return sink.write(text.data(), text.size());
        },
        [this](bool) { events.Leave(); });
  }

  static std::string AddressOf(const Request& request) {
    return StrCat("http ", request.remote_addr);
  }

  const HttpServerOptions options;
  const std::string own_name;
  Documents& documents;
  const DashboardTokens& tokens;
  std::map<std::string, const Page*> pages;  // by path
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> requests{0};
  SharedDocuments shared;
  Events events;
  BoundedServer server;
  std::string url;
  int port = 0;
  std::thread listener;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(
    const HttpServerOptions& options, Documents& documents,
    const DashboardTokens& tokens) {
  auto impl = std::make_unique<Impl>(options, documents, tokens);
  GAVEL_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::Serve() { impl_->Serve(); }

const std::string& HttpServer::url() const { return impl_->url; }
int HttpServer::port() const { return impl_->port; }

}  // namespace gavel
