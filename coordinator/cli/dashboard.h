// The dashboard of a coordinator: the documents that its pages read.
#ifndef GAVEL_COORDINATOR_CLI_DASHBOARD_H_
#define GAVEL_COORDINATOR_CLI_DASHBOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/http/documents.h"
#include "coordinator/http/metrics.h"
#include "coordinator/server/local_requests.h"
#include "coordinator/server/rows.h"
#include "coordinator/workload/json_fields.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// How users and apps fared over time, as far as this process saw it: samples of
// their received shares and of rho. Thread-safe.
class FairnessRecord {
 public:
  static constexpr size_t kSamplesMax = 500;
  static constexpr size_t kNamesMax = kSharersMax;  // users, and apps

  // `at_s`: since 1970.
  void Add(double at_s, const JobTotalsRow& totals);
  // {"at_s": [...], "users": [{"name", "owner", "share": [...], "rho": [...]}],
  // "apps": likewise}. A share is the received one over the target. The arrays
  // have one value for each sample; null: it had no share, or no rho.
  Json ToJson() const;

 private:
  struct Point {
    std::optional<double> share;
    std::optional<double> rho;
  };
  // By name and owner. Each has as many points as there are samples.
  using Series =
      std::map<std::pair<std::string, std::string>, std::deque<Point>>;
  void AddTo(const std::vector<SharerRow>& sharers, Series* series) const;

  mutable std::mutex mutex_;  // guards what follows
  std::deque<double> at_s_;
  Series users_;
  Series apps_;
};

// Makes the documents out of answers of this process's coordinator, with the
// keys that the commands print as --json. Thread-safe, except for Attach and
// StopSolving; borrows the requests.
class CoordinatorDocuments : public Documents {
 public:
  static constexpr double kReplyTimeout_s = 5;
  // The coordinator itself waits up to 10 s for the agent that has the log.
  static constexpr double kLogTimeout_s = 12;
  // Jobs in the matrix of throughputs, answers with pieces of a log (of 32
  // KiB), rounds in the history of shares, answers with a table of the history,
  // and the days of usage.
  static constexpr size_t kMatrixRowsMax = 1000;
  static constexpr int kLogPiecesMax = 64;
  static constexpr size_t kSharesMax = 500;
  static constexpr int kHistoryPagesMax = 500;
  static constexpr double kUsageDays = 1;

  // A preview takes as long as its solves. Its reader waits so long, and the
  // end of the coordinator so long.
  static constexpr double kPreviewTimeout_s = 15;
  static constexpr double kFarewell_s = 0.2;

  // Shares are sampled once in each round, or at another interval, and at most
  // this often.
  static constexpr double kSampleMin_s = 10;
  // Where there are no rounds, or the coordinator does not answer.
  static constexpr double kSampleElse_s = 360;

  // `sample_s`: the interval of samples; nothing: a round.
  explicit CoordinatorDocuments(std::optional<double> sample_s = {});

  // Before the first document is asked for: where the coordinator is asked.
  // Takes samples from now on.
  void Attach(LocalRequests& requests) {
    requests_ = &requests;
    samples_.Post(true);
  }
  // Nobody waits for a preview any more. Any thread.
  void GiveUpPreviews() { stopping_ = true; }
  // Ends previews and samples. Call this at most once, when no further requests
  // come. False: a preview is still being solved, on data of its own, and the
  // process must end by std::_Exit.
  bool StopSolving() {
    samples_.Stop();
    return previews_.Stop(kFarewell_s);
  }

  absl::StatusOr<std::string> Get(const DocumentRequest& request) override;
  absl::Status Act(const std::string& key, const std::string& address,
                   const CommandRequest& command) override;

 private:
  absl::StatusOr<QueryReply> Ask(const DocumentRequest& from,
                                 const QueryRequest& query);
  absl::StatusOr<Json> Query(const DocumentRequest& from, QueryKind kind,
                             const std::string& filter = "");
  // The rows of all jobs that are not over.
  absl::StatusOr<Json> PresentJobs(const DocumentRequest& from);
  absl::StatusOr<Json> History(const DocumentRequest& from, const char* table,
                               double since_s = 0);

  // The same with the job's own id in the place of its array's.
  absl::StatusOr<DocumentRequest> Resolve(const DocumentRequest& request);
  absl::StatusOr<Json> JobsPage(const DocumentRequest& request);
  absl::StatusOr<Json> OneJob(const DocumentRequest& request);
  absl::StatusOr<Json> LogTail(const DocumentRequest& request);
  absl::StatusOr<Json> Losses(const DocumentRequest& request);
  absl::StatusOr<Json> Fairness(const DocumentRequest& request);
  // As `gavel usage --json`, and the rows of intended shares behind it.
  absl::Status AddUsage(const DocumentRequest& request, double since_s,
                        double now_s, Json* fairness, Json* shares);
  // Takes one sample. Returns after how many seconds the next one is due.
  Time Sample();
  absl::StatusOr<Json> Policies(const DocumentRequest& request);
  absl::StatusOr<Json> SolvePreview(const DocumentRequest& request);
  absl::StatusOr<std::string> Metrics(const DocumentRequest& request);

  // The last output of rank 0, in whole lines.
  struct LogEnd {
    std::string text;
    std::string server;
    bool is_complete = false;  // it is the end of the output
    bool is_all = false;       // and begins where the output begins
  };
  absl::StatusOr<LogEnd> ReadLogEnd(const DocumentRequest& request,
                                    uint64_t bytes);
  // The error for something about the job that the coordinator has refused.
  // NOT_FOUND: it has no such job.
  absl::Status RefusalOf(const DocumentRequest& request,
                         const absl::Status& why);

  LocalRequests* requests_ = nullptr;
  std::mutex preview_mutex_;  // held by a request for a preview: one at a time
  std::mutex ages_mutex_;     // guards the next
  CheckpointAges ages_;
  std::atomic<bool> stopping_{false};
  const std::optional<double> sample_s_;
  FairnessRecord record_;
  WorkerThread<std::packaged_task<absl::StatusOr<Json>()>> previews_;
  WorkerThread<bool> samples_;  // the last member: it uses the others
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DASHBOARD_H_
