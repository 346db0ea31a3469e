// A TCP relay between agents or workers and their coordinator that behaves like
// a bad network: connections are cut in the middle of a frame, go silent while
// both ends believe in them, are delayed or throttled. Bytes that it passes on
// are the right ones, in order, once: TCP gives that much.
//
// One thread inside. Thread-safe.
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

// What may happen to a connection; all zero: a good line. Rates are per second
// and connection.
struct Chaos {
  double cuts_per_s = 0;  // reset, with part of what was on its way lost
  double silences_per_s =
      0;                   // nothing passes any more for `silence_s`, then it
  double silence_s = 2;    // is reset
  double delay_s_max = 0;  // of each piece, drawn evenly
  double bytes_per_s = 0;  // in each direction; 0: no limit
};

class ChaosProxy {
 public:
  // Listens on a free port of `listen_address` and connects to
  // `target_address`:`target_port`. Ends the process where the system refuses.
  ChaosProxy(const std::string& target_address, int target_port, uint64_t seed,
             const std::string& listen_address = "127.0.0.1",
             int listen_port = 0);
  ~ChaosProxy();
  ChaosProxy(const ChaosProxy&) = delete;
  ChaosProxy& operator=(const ChaosProxy&) = delete;

  int port() const { return port_; }
  std::string endpoint() const;  // "tcp://127.0.0.1:PORT"
  // From now on.
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
  // False: it is over.
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
  // Of the thread alone.
  std::mt19937_64 random_;
  std::list<Connection> open_;
  std::thread thread_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_CHAOS_PROXY_H_
