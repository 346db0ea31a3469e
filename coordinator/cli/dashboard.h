// The dashboard of a coordinator: the documents that its pages read.
#ifndef GAVEL_COORDINATOR_CLI_DASHBOARD_H_
#define GAVEL_COORDINATOR_CLI_DASHBOARD_H_

#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/http/documents.h"
#include "coordinator/server/local_requests.h"
#include "coordinator/workload/json_fields.h"
#include "core/messages.h"

namespace gavel {

// Makes the documents out of answers of this process's coordinator, with the
// keys that the commands print as --json. Thread-safe; borrows the requests.
class CoordinatorDocuments : public Documents {
 public:
  static constexpr double kReplyTimeout_s = 5;
  // The coordinator itself waits up to 10 s for the agent that has the log.
  static constexpr double kLogTimeout_s = 12;
  // Jobs in the matrix of throughputs, answers with pieces of a log, rounds in
  // the history of shares, answers with a table of the history, and the days of
  // usage.
  static constexpr size_t kMatrixRowsMax = 1000;
  static constexpr int kLogPiecesMax = 64;
  static constexpr size_t kSharesMax = 500;
  static constexpr int kHistoryPagesMax = 500;
  static constexpr double kUsageDays = 1;

  explicit CoordinatorDocuments(LocalRequests& requests)
      : requests_(requests) {}

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

  absl::StatusOr<Json> JobsPage(const DocumentRequest& request);
  absl::StatusOr<Json> OneJob(const DocumentRequest& request);
  absl::StatusOr<Json> LogTail(const DocumentRequest& request);
  absl::StatusOr<Json> Losses(const DocumentRequest& request);
  absl::StatusOr<Json> Fairness(const DocumentRequest& request);
  // As `gavel usage --json`, and the rows of intended shares behind it.
  absl::Status AddUsage(const DocumentRequest& request, double since_s,
                        double now_s, Json* fairness, Json* shares);
  absl::StatusOr<Json> Policies(const DocumentRequest& request);
  absl::StatusOr<Json> SolvePreview(const DocumentRequest& request);
  absl::StatusOr<std::string> Metrics(const DocumentRequest& request);

  LocalRequests& requests_;
  std::mutex preview_mutex_;  // one at a time
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DASHBOARD_H_
