// Writes lines on a thread of its own, so that no event loop waits for a
// stopped terminal, a full pipe or a disk. The daemons' logs and the audit log
// each own one.
//
// Thread-safe; Append never waits.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_LINE_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_LINE_THREAD_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

namespace gavel {

class LineThread {
 public:
  // Lines that wait to be written; beyond, the newest are lost, and counted.
  static constexpr size_t kQueuedBytesMax = size_t{4} << 20;
  // At the end, for those that still wait.
  static constexpr double kFarewell_s = 1;

  // Called on the thread, a line at a time. It may wait until it is asked to
  // stop. False: the line is lost.
  using Write =
      std::function<bool(std::string_view line, const std::stop_token& stop)>;

  explicit LineThread(Write write);
  ~LineThread();
  LineThread(const LineThread&) = delete;
  LineThread& operator=(const LineThread&) = delete;

  // False: it is lost, for too many wait.
  bool Append(std::string line);
  // Lines lost since the last call.
  uint64_t TakeLost();

 private:
  void Work(const std::stop_token& stop);

  const Write write_;
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable_any changed_;
  std::deque<std::string> lines_;  // the first one is being written
  size_t bytes_ = 0;               // of those
  uint64_t lost_ = 0;
  std::jthread thread_;
};

// A Write to a descriptor, which outlives the thread: waits until there is
// room, as for a pipe or a terminal.
LineThread::Write WriteTo(int descriptor);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_LINE_THREAD_H_
