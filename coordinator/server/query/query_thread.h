// Writes answers to queries on a thread of its own: a listing of thousands of
// jobs, or a page of the history in the journal's file, takes longer than
// anybody's lease should wait. A reader beyond its allowance of bytes gets
// later pages later, and delays no other reader. The coordinator's event loop
// owns one for listings and one for the history.
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
  struct Limits {
    // Questions whose answers nobody has taken, of one reader and of all.
    size_t of_one_max;
    size_t of_all_max;
    // Bytes of answers to each reader, in bursts of ten seconds; 0: no limit.
    double bytes_per_s;
  };
  // The bytes of the rows of ten thousand jobs.
  static constexpr Limits kListings = {64, 1024, 8e6};
  static constexpr Limits kHistory = {32, 256, 0};

  // Called on the thread: whatever it reads does not change.
  using Write = std::function<QueryReply()>;

  QueryThread(const Limits& limits, std::function<void()> notify);
  // Waits for the answer that is being written; the others are forgotten.
  ~QueryThread();
  QueryThread(const QueryThread&) = delete;
  QueryThread& operator=(const QueryThread&) = delete;

  // An answer for `peer`, on the account of `reader`. False: too many wait, it
  // is to be refused.
  bool Ask(std::string peer, std::string reader, Write write);

  struct Answer {
    std::string peer;
    std::string reader;
    QueryReply reply;
  };
  // The next answer; of one reader in the order of the questions.
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

  const Limits limits_;
  const std::function<void()> notify_;
  const Stopwatch clock_;
  // As in CommitThread, of the standard library.
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  RequestRates bytes_;
  std::deque<Question> waiting_;
  std::deque<Answer> answers_;
  size_t untaken_ = 0;  // questions whose answers nobody has taken
  std::map<std::string, size_t> untaken_of_;  // the same, by reader
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_QUERY_THREAD_H_
