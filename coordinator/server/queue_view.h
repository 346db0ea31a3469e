// The jobs as `gavel queue` and `gavel why` show them: one job (JobView), and
// the queue at one moment (QueueView).
#ifndef GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_
#define GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/explanations.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/principals.h"
#include "coordinator/server/rows.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// A job as `gavel queue` and `gavel why` show it: copied from the engine on the
// event loop, made into a row (rows.h) on any thread. Values; the functions are
// pure.

// The values of the job file, which stay the same from view to view.
struct JobFacts {
  std::string name;
  std::string app;
  std::string entity;
  std::string owner;
  std::string checkpoint_directory;
  double weight = 1;
  int scale_factor_asked = 1;
  int scale_factor_min = 1;
  int scale_factor_max = 1;
  uint64_t steps_total = 0;
  // QueueRow has them, too.
  JobId array;
  std::string array_name;
  int array_index = 0;
  bool opaque = false;
  Named<std::string> sweep;
};

// The progress of a gang's ranks as one. They step together, so counts of steps
// are those of the slowest rank, and counts of pauses those of any rank.
struct JobProgress {
  uint64_t steps_done = 0;
  double steps_per_s = 0;  // 0 unless running
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t incarnations = 0;
  Generation last_generation;
};

struct JobView {
  JobId id;
  std::shared_ptr<const JobFacts> facts;
  std::string_view state;  // StateLetters
  // For the reason Priority, a WaitingLine tells the place in line.
  Reason reason;
  // Behind the reason, and where its tensors are; mostly empty.
  std::string notes;
  std::string memory;
  int scale_factor = 1;
  JobProgress progress;
  std::vector<HeldAcceleratorRow> held;  // the first kAcceleratorsPerRowMax
  Named<double> scalars;
  JobShares shares;
  double received_s = 0;
  std::optional<double> rho;            // QueueRow::rho
  std::optional<double> left_s;         // QueueRow::left_s
  std::optional<double> app_to_come_s;  // QueueRow::app_to_come_s
  std::string auction;                  // AuctionText; of one job alone
  std::string bidder;                   // QueueRow::bidder
  std::vector<JobId> awaits;            // QueueRow::awaits
  Time submitted_at = 0;
  Time ended_at = 0;
  double submitted_wall_s = 0;  // since 1970
  double ended_wall_s = 0;
  bool over = false;     // finished or cancelled
  bool settled = false;  // over, and its last process has ended
  uint64_t epoch = 0;
  int failures_in_a_row = 0;
  int last_end = 0;                // as Job::last_end
  std::vector<LossRow> losses;     // of one job alone
  std::vector<ParentRow> parents;  // likewise
};

// `rho_of` has the rho of the job's app, if it is known. `before` has the facts
// of an earlier view of the job, which are shared when they have not changed;
// may be null. The cost does not grow with the number of jobs.
JobView ViewOf(const Job& job, const Engine& engine, Time now,
               const std::map<JobId, double>& rho_of,
               std::shared_ptr<const JobFacts> before);

// The queue's row of the job, as of `now`, for `reader`: words of the program
// and of the job file only where it may read them. Fills one that may have been
// another job's, which saves allocations.
void FillQueueRow(const JobView& job, const WaitingLine& line, Time now,
                  const Identity& reader, QueueRow* row);

// The additions of `gavel why`, for one job alone.
std::vector<ThroughputRow> ThroughputsOf(const Job& job, const Engine& engine);
WhyRow WhyRowOf(const JobView& job, const WaitingLine& line,
                const Identity& reader, std::vector<ThroughputRow> throughputs);

// The places in line of one plan. The event loop copies the rows, and the first
// thread that asks sorts them. Thread-safe.
class PlanLine {
 public:
  PlanLine(RoundTable rows, std::vector<std::string> types,
           double round_duration_s)
      : rows_(std::move(rows)),
        types_(std::move(types)),
        round_duration_s_(round_duration_s) {}
  const WaitingLine& Get() {
    std::call_once(sorted_, [this] {
      line_ = WaitingLine(rows_, std::move(types_), round_duration_s_);
      rows_ = RoundTable(0);
    });
    return line_;
  }

 private:
  RoundTable rows_;
  std::vector<std::string> types_;
  double round_duration_s_;
  std::once_flag sorted_;
  WaitingLine line_;
};

// "rho 1.31; bid for 2 v100; won 2; share kept 0.87": the job's app in the
// last auction. Empty: the policy holds none.
std::string AuctionText(const Job& job, const Engine& engine);

// The jobs and arrays that the job waits for, and the others that its file
// names. An id is known of the latter only if the file names it by its id.
std::vector<ParentRow> ParentsOf(const Job& job, const Engine& engine);

struct QueueView {
  Time now = 0;
  std::vector<std::shared_ptr<const JobView>> jobs;  // ascending
  std::shared_ptr<PlanLine> line;
};

// A page of `view`: rows of jobs above the cursor (the last one's id) that
// match `filter`. The filter is JSON, and an empty one matches all jobs. Each
// key of
//   {"states": ["R", "PD"], "user": "ann", "name": "lm", "app": "search",
//    "ended_max": 10, "array": 42, "array_index": 7,
//    "totals": true, "one_of_array": true}
// may be missing. A "name" may be that of an array, whose elements match.
// "own": true instead of "user" selects the jobs of `reader`. "ended_max"
// limits finished and cancelled jobs to so many, the latest. "one_of_array":
// true leaves one of the matching elements of each array: the first that is not
// over, or else the first. With "totals":
// true the answer is the JobTotalsRow of the jobs that match and are not over.
// An invalid filter sets `error`.
QueryReply ListQueue(const QueryRequest& request, const QueueView& view,
                     const Identity& reader);

// kWhy, or kQueue: of one job.
QueryReply AnswerOfJob(const QueryRequest& request, const Identity& reader,
                       const JobView& job,
                       const std::vector<ThroughputRow>& throughputs,
                       const WaitingLine& line, Time now);

// The queue at one moment, for any thread to list: the event loop copies it
// when somebody asks, and everybody who asks meanwhile gets the same copy.
//
// QueueViews belongs to the event loop; a QueueView is immutable.
class QueueViews {
 public:
  // Views take at most one part in so many of the event loop's time.
  static constexpr double kPause = 5;
  // How old one may be that the next page of a listing is taken from.
  static constexpr double kListingAge_s = 2;

  // Borrows the engine.
  explicit QueueViews(const Engine& engine) : engine_(engine) {}

  // Something was planned: places in line are others.
  void NotePlan() { line_.reset(); }

  // Jobs by state letters; of some milliseconds ago where there are many.
  const Named<uint64_t>& CountsAt(Time now);

  // When Make may be called again.
  Time due_at() const { return due_at_; }
  // A few milliseconds for 10,000 jobs.
  std::shared_ptr<const QueueView> Make(Time now);
  // The last one, if it is young enough for `request`; null: none is.
  std::shared_ptr<const QueueView> ForPage(Time now,
                                           const QueryRequest& request) const;

  // One job alone, whatever the number of jobs.
  JobView MakeOne(const Job& job, Time now) const {
    JobView view =
        ViewOf(job, engine_, now, engine_.RhoOfJobs(now, &job), nullptr);
    view.auction = AuctionText(job, engine_);
    view.parents = ParentsOf(job, engine_);
    for (const auto& [steps, loss] : job.losses.points()) {
      view.losses.push_back({steps, loss});
    }
    return view;
  }
  // The line of the last plan, which the first call after that plan makes.
  std::shared_ptr<PlanLine> Line(Time now);

 private:
  const Engine& engine_;
  std::shared_ptr<const QueueView> last_;
  std::shared_ptr<PlanLine> line_;
  Time due_at_ = -kNever;
  Named<uint64_t> counts_;
  Time counts_due_at_ = -kNever;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_
