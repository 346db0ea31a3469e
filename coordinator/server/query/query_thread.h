// Writes answers to queries on a thread of its own: a listing of thousands of
// jobs takes longer than anybody's lease should wait. Whoever reads more than
// the allowance of one user gets later pages later, and nobody else does. The
// coordinator's event loop owns one.
//
// Thread-safe. `notify` is called on the thread when an answer is there; it
// must not block, nor call back.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_QUERY_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_QUERY_THREAD_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "coordinator/server/access/request_rates.h"
#include "core/messages.h"
#include "runtime/stopwatch.h"

namespace gavel {

class QueryThread {
 public:
  // Questions that wait and answers that nobody has taken, of one reader and of
  // all.
  static constexpr size_t kOfOneMax = 64;
  static constexpr size_t kOfAllMax = 1024;
  // Bytes of answers a second of each reader, in bursts of ten seconds: the
  // rows of ten thousand jobs.
  static constexpr double kBytesPerSecond = 8e6;

  // Called on the thread: whatever it reads does not change.
  using Write = std::function<QueryReply()>;

  explicit QueryThread(std::function<void()> notify);
  // Waits for the answer that is being written; the others are forgotten.
  ~QueryThread();
  QueryThread(const QueryThread&) = delete;
  QueryThread& operator=(const QueryThread&) = delete;

  // An answer for `peer`, on the account of `reader`. False: too many wait, it
  // is to be refused.
  bool Ask(std::string peer, std::string reader, Write write);

  struct Answer {
    std::string peer;
    QueryReply reply;
  };
  // The next answer.
  std::optional<Answer> TakeAnswer();

 private:
  struct Question {
    std::string peer;
    std::string reader;
    Write write;
  };
  void Work();
  // Waits for one whose reader has something left. Nothing: the end.
  std::optional<Question> TakeQuestion();

  const std::function<void()> notify_;
  const Stopwatch clock_;
  // As in CommitThread, of the standard library.
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  RequestRates bytes_{kBytesPerSecond};
  std::deque<Question> waiting_;
  std::deque<Answer> answers_;
  std::map<std::string, size_t> waiting_of_;  // questions by reader
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_QUERY_THREAD_H_
