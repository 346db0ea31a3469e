// Plain sockets that speak HTTP, well or badly.
#ifndef GAVEL_TESTS_HTTP_RAW_HTTP_H_
#define GAVEL_TESTS_HTTP_RAW_HTTP_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "core/text.h"
#include "runtime/files/files.h"
#include "tests/support/eventually.h"

namespace gavel::testing {

class RawConnection {
 public:
  explicit RawConnection(int port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof address) == 0;
  }
  bool connected() const { return connected_; }

  void Send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t put = send(socket_.get(), text.data() + sent,
                               text.size() - sent, MSG_NOSIGNAL);
      if (put <= 0) return;
      sent += static_cast<size_t>(put);
    }
  }

  // Returns all that has come, once `text` is in it, the peer has closed, or
  // the time is over.
  std::string ReadUntil(const std::string& text, double timeout_s = 30) {
    const double end = Seconds() + timeout_s;
    while (Seconds() < end &&
           (text.empty() || got_.find(text) == std::string::npos)) {
      pollfd one{socket_.get(), POLLIN, 0};
      if (poll(&one, 1, 50) <= 0) continue;
      char bytes[4096];
      const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, 0);
      if (got <= 0) {
        closed_ = true;
        break;
      }
      got_.append(bytes, static_cast<size_t>(got));
    }
    return got_;
  }
  std::string ReadAll(double timeout_s = 30) {
    return ReadUntil("", timeout_s);
  }
  // Returns the text that came since the last call; empty after `timeout_s`.
  std::string Take(double timeout_s) {
    pollfd one{socket_.get(), POLLIN, 0};
    if (poll(&one, 1, static_cast<int>(timeout_s * 1000)) > 0) {
      char bytes[16384];
      const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, 0);
      closed_ = got <= 0;
      if (!closed_) got_.append(bytes, static_cast<size_t>(got));
    }
    return std::exchange(got_, {});
  }
  bool closed() const { return closed_; }

 private:
  Descriptor socket_;
  bool connected_ = false;
  bool closed_ = false;
  std::string got_;
};

struct RawAnswer {
  int code = 0;  // 0: none came
  std::string head;
  std::string body;
};

inline RawAnswer ParseAnswer(const std::string& text) {
  RawAnswer answer;
  if (text.size() > 12) answer.code = std::atoi(text.substr(9, 3).c_str());
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.head = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  return answer;
}

// One request and all of its answer. `headers`: lines that end with "\r\n".
inline RawAnswer Exchange(int port, const std::string& line,
                          const std::string& headers = "Host: 127.0.0.1\r\n",
                          const std::string& body = "") {
  RawConnection connection(port);
  connection.Send(StrCat(line, " HTTP/1.1\r\n", headers, "\r\n", body));
  return ParseAnswer(connection.ReadAll());
}

inline RawAnswer Get(int port, const std::string& path) {
  return Exchange(port, StrCat("GET ", path));
}

// An action as the pages send it, with further headers.
inline RawAnswer Post(int port, const std::string& token,
                      const std::string& body, const std::string& more = "") {
  return Exchange(
      port, "POST /api/action",
      StrCat("Host: 127.0.0.1:", port, "\r\nContent-Type: application/json\r\n",
             "Content-Length: ", body.size(), "\r\nAuthorization: Bearer ",
             token, "\r\n", more),
      body);
}

// The port of "http://127.0.0.1:8080/".
inline int PortOf(const std::string& url) {
  return std::atoi(url.substr(url.rfind(':') + 1).c_str());
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_HTTP_RAW_HTTP_H_
