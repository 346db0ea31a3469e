// Answers `gavel history` on a thread of its own: a page looks at thousands of
// rows of the journal's file, and nobody's lease is to wait for that. The
// coordinator's event loop owns one.
//
// Thread-safe. `notify` is called on the thread when an answer is there; it
// must not block, nor call back.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_THREAD_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/messages.h"

namespace gavel {

class HistoryThread {
 public:
  // Requests that wait, and answers that nobody has taken, of all and of one
  // reader.
  static constexpr size_t kWaitingMax = 256;
  static constexpr size_t kOfOneMax = 32;

  // Reads the journal at `path`.
  HistoryThread(std::string path, std::function<void()> notify);
  // Waits for the page that is being read; the others are forgotten.
  ~HistoryThread();
  HistoryThread(const HistoryThread&) = delete;
  HistoryThread& operator=(const HistoryThread&) = delete;

  // A page for `peer`, which `reader` asks for. False: too many wait, it is to
  // be refused.
  bool Ask(std::string peer, const std::string& reader, QueryRequest request);

  struct Answer {
    std::string peer;
    std::string reader;
    QueryReply reply;
  };
  // The next answer, in the order of the requests.
  std::optional<Answer> TakeAnswer();

 private:
  struct Question {
    std::string peer;
    std::string reader;
    QueryRequest request;
  };
  void Work();
  // Waits for one. Nothing: the end.
  std::optional<Question> TakeQuestion();

  const std::string path_;
  const std::function<void()> notify_;
  // As in CommitThread, of the standard library.
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Question> waiting_;
  std::deque<Answer> answers_;
  size_t untaken_ = 0;  // questions whose answers nobody has taken
  std::map<std::string, size_t> untaken_of_;  // the same, by reader
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_THREAD_H_
