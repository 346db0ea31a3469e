// A TCP relay between agents or workers and their coordinator that behaves like
// a bad network: it cuts connections in the middle of a frame, makes them
// silent while both ends believe in them, and delays or throttles them. Like
// TCP, it never changes, reorders or repeats the bytes that it passes on.
//
// The relay runs on a thread of its own. Thread-safe.
#ifndef GAVEL_TESTS_RELIABILITY_CHAOS_PROXY_H_
#define GAVEL_TESTS_RELIABILITY_CHAOS_PROXY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace gavel::testing {

// The faults of connections. With all zero the connection is good. Rates are
// per second and connection.
struct Chaos {
  double cuts_per_s = 0;  // resets, which lose part of the bytes on their way
  // For silence_s nothing passes any more, then the connection is reset.
  double silences_per_s = 0;
  double silence_s = 2;
  double delay_s_max = 0;  // of each piece, drawn uniformly
  double bytes_per_s = 0;  // in each direction; 0: no limit
};

class ChaosProxy {
 public:
  // Listens on a free port of `listen_address` and connects to
  // `target_address`:`target_port`. Exits the process when a system call fails.
  ChaosProxy(const std::string& target_address, int target_port, uint64_t seed,
             const std::string& listen_address = "127.0.0.1",
             int listen_port = 0);
  ~ChaosProxy();
  ChaosProxy(const ChaosProxy&) = delete;
  ChaosProxy& operator=(const ChaosProxy&) = delete;

  int port() const { return port_; }
  std::string endpoint() const;  // "tcp://127.0.0.1:PORT"
  // Applies from now on.
  void Set(const Chaos& chaos);
  // Resets every connection that there is.
  void CutAll() { cut_all_ = true; }

  // How often each has happened.
  uint64_t connections() const { return connections_; }
  uint64_t cuts() const { return cuts_; }
  uint64_t silences() const { return silences_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Way {  // one direction
    int from = -1;
    int to = -1;
    std::string bytes = "";  // taken, not yet passed on
    Clock::time_point not_before = {};
  };
  struct Connection {
    Way up;
    Way down;
    bool silent = false;
    Clock::time_point reset_at = Clock::time_point::max();
  };

  void Serve();
  void Accept();
  // These return false when the connection is over.
  bool Turn(Connection& connection, const Chaos& chaos, double span_s);
  bool Take(Way& way, const Chaos& chaos, Clock::time_point now);
  bool Pass(Way& way, const Chaos& chaos, Clock::time_point now);
  void Reset(Connection& connection);
  bool Happens(double per_s, double span_s);

  const std::string target_address_;
  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  Chaos chaos_;  // under mutex_
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cut_all_{false};
  std::atomic<uint64_t> connections_{0};
  std::atomic<uint64_t> cuts_{0};
  std::atomic<uint64_t> silences_{0};
  // Only the thread uses these.
  std::mt19937_64 random_;
  std::list<Connection> open_;
  std::thread thread_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_CHAOS_PROXY_H_
