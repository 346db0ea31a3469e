// Answers to queries: about servers, the coordinator and forecasts
// (AnswerQuery), and the thread that writes longer answers (QueryThread).
// Queries about jobs are in queue_view.h.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/limits.h"
#include "coordinator/server/rows.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// Answers what `gavel nodes`, `status` and `what-if` ask: rows (rows.h), as
// JSON. Pure: reads the engine, changes nothing. The coordinator's event loop
// calls it between two steps.
//
// Times are seconds of the engine's clock, which stands still while no
// coordinator runs; "now_s" is in every status.

// At most this many accelerators are named in a row: a job's further ones are
// only counted, a server's further ones follow in rows of the same server.
inline constexpr size_t kAcceleratorsPerRowMax = 64;

// The status has these figures of the coordinator's threads.
struct ThreadFigures {
  std::optional<double> solve_s;  // the last solve; nothing: there was none
  uint64_t rows_unwritten = 0;    // of the journal
};

// Counts pauses and moves, and the time that they cost, since the coordinator
// was started. The journal gives the baseline of each job. A lease that is
// older than the start counts as a return: how it began is not known. Each
// further event takes the same time, however many jobs there are. The event
// loop owns one; not thread-safe.
class StayCosts {
 public:
  static constexpr double kLimits_s[] = {
      0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  StayCosts();

  // The engine has taken the event.
  void Note(const Event& event, const Engine& engine);
  const StaysRow& row() const { return row_; }

 private:
  enum Beginning : size_t { kStart, kReturn, kMove };
  // The last lease of a job.
  struct Stay {
    Beginning began = kStart;
    // The job's totals when it was last looked at.
    uint64_t moves = 0;
    double pausing_s = 0;
  };
  void Restart(const Engine& engine);
  void Begin(JobId id, const Engine& engine);
  void End(const event::LeaseEnded& e, const Engine& engine);
  // Forgets one job that is over, if the next one is.
  void ForgetOne(const Engine& engine);

  StaysRow row_;
  std::map<JobId, Stay> stays_;
  JobId looked_at_;  // by ForgetOne
};

struct QueryView {
  const Engine& engine;
  Time now = 0;
  std::string_view policy;
  WireCounts wire = {};
  std::vector<std::string> troubles = {};  // that a person has to see to
  // CountStates, where it has been computed already.
  const Named<uint64_t>* counts = nullptr;
  ThreadFigures threads = {};
  const StaysRow* stays = nullptr;
};

// Answers kNodes (rows of servers; the cursor counts rows), kStatus (one
// object) and kForecast (rows of jobs). Queries about jobs are answered
// by queue_view.h.
QueryReply AnswerQuery(const QueryRequest& request, const QueryView& view);

// The parts of AnswerQuery that return rows. A row of a server names at most
// kAcceleratorsPerRowMax accelerators; further ones follow in rows of the same
// server.
void AnswerNodes(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply);
// The input of a prediction for each active job, for `gavel what-if`: the
// client simulates, so that the coordinator never computes for it. With the
// filter kWithWaiting also for each other job that has not ended. Rows are
// ordered by job id, and the cursor is the last one's. "steps_left" is null for
// a job that runs until its program ends by itself.
void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply);

// As squeue's: PD waiting, R running, S paused, CG pausing or ending,
// CD finished, F held after failures, CA cancelled.
std::string_view StateLetters(const Job& job);
// "measured".
std::string_view SourceName(ThroughputSource source);
// Where the job's throughput on that type comes from; "out of memory": the job
// has failed there.
std::string_view SourceOf(const Job& job, const std::string& type,
                          const Engine& engine);
// Jobs by state letters: 0 of each, one job more, and all jobs, looking at
// each.
Named<uint64_t> NoCounts();
void CountState(const Job& job, Named<uint64_t>* counts);
Named<uint64_t> CountStates(const std::map<JobId, Job>& jobs);

// Writes answers to queries on a thread of its own: a listing of thousands of
// jobs, or a page of the history in the journal's file, takes longer than
// anybody's lease should wait. A reader beyond its allowance of bytes gets
// later pages later, and delays no other reader. The coordinator's event loop
// owns one for listings and one for the history.
//
// Thread-safe. `notify` is called on the thread when an answer is there; it
// must not block, nor call back.
class QueryThread {
 public:
  struct Limits {
    // The most questions with answers that wait to be taken, of one reader and
    // of all readers.
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

  // The end waits for the answer that is being written; the others are
  // forgotten.
  QueryThread(const Limits& limits, std::function<void()> notify);

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
  // Answers one question at most. Returns after how many seconds the next one
  // may be answered, for its reader then has something left.
  Time Work(std::vector<Question> questions);

  const Limits limits_;
  const std::function<void()> notify_;
  const Stopwatch clock_;
  // Used by the thread alone.
  RequestRates bytes_;
  std::deque<Question> waiting_;
  // As in WorkerThread, of the standard library.
  std::mutex mutex_;  // guards all below but the thread
  std::deque<Answer> answers_;
  size_t untaken_ = 0;  // questions whose answers nobody has taken
  std::map<std::string, size_t> untaken_of_;  // the same, by reader
  WorkerThread<Question> thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_H_
