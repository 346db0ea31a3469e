// The jobs as `gavel queue` and `gavel why` show them: one job (JobView), and
// the queue at one moment (QueueView).
#ifndef GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_
#define GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "coordinator/engine/solver.h"
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
  // The error line of its last failure, for who may read it; mostly empty.
  std::string last_error;
  std::string memory;
  int scale_factor = 1;
  JobProgress progress;
  std::vector<HeldAcceleratorRow> held;  // the first kAcceleratorsPerRowMax
  Named<double> scalars;
  JobShares shares;
  double received_s = 0;
  std::optional<double> rho;            // QueueRow::rho; of one job alone
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

// Without rho. `before` has the facts of an earlier view of the job, which are
// shared when they have not changed; may be null. The cost does not grow with
// the number of jobs.
JobView ViewOf(const Job& job, const Engine& engine, Time now,
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

// A value of a view that is made when it is first asked for. Thread-safe.
template <class T>
class Later {
 public:
  explicit Later(std::function<T()> make) : make_(std::move(make)) {}
  const T& Get() {
    std::call_once(made_, [this] { value_ = std::exchange(make_, nullptr)(); });
    return value_;
  }

 private:
  std::function<T()> make_;
  std::once_flag made_;
  T value_;
};

// The event loop copies rows, and the first thread that asks computes with
// them: the places in line of one plan, and the rho of the jobs of one view.
using PlanLine = Later<WaitingLine>;
using JobsRho = Later<std::map<JobId, double>>;

// "rho 1.31; bid for 2 v100; won 2; share kept 0.87": the job's app in the
// last auction. Empty: the policy holds none.
std::string AuctionText(const Job& job, const Engine& engine);

// The jobs and arrays that the job waits for, and the others that its file
// names. An id is known of the latter only if the file names it by its id.
std::vector<ParentRow> ParentsOf(const Job& job, const Engine& engine);

struct QueueView {
  uint64_t number = 0;  // of QueueViews
  Time now = 0;
  std::vector<std::shared_ptr<const JobView>> jobs;  // ascending
  std::shared_ptr<PlanLine> line;
  std::shared_ptr<JobsRho> rho;  // null: nobody has an app

  std::optional<double> RhoOf(JobId job) const;
};

// The cursor of a listing: the view that its pages are from, and the last job
// that was listed. It is below 2^53, as long as jobs are fewer than 2^40, and
// so exact as a number of JavaScript.
struct ListingCursor {
  static constexpr int kJobBits = 40;
  static constexpr uint64_t kViews = uint64_t{1} << 12;  // then 0 again

  static ListingCursor Read(uint64_t cursor) {
    return {cursor >> kJobBits,
            JobId(cursor & ((uint64_t{1} << kJobBits) - 1))};
  }
  uint64_t Write() const { return view << kJobBits | job.value(); }

  uint64_t view = 0;
  JobId job;
};

// A page of `view`: rows of jobs above the cursor (ListingCursor) that match
// `filter`. The filter is JSON, and an empty one matches all jobs. Each key of
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

// The queue for any thread to list: the event loop copies it when somebody
// asks, and everybody who has asked until it begins gets the same copy. It
// copies some jobs at a time (Advance), so that no lease waits for a long
// queue. Each job is shown as it was at some moment while the copy was made,
// and no accelerator is with two jobs. Jobs are counted for the status in the
// same way.
//
// QueueViews belongs to the event loop; a QueueView is immutable.
class QueueViews {
 public:
  // Views and counts take at most one part in so many of the event loop's time
  // each.
  static constexpr double kPause = 5;
  // How long Advance and CountSome take.
  static constexpr double kSlice_s = 1e-3;
  // How old a view may be that the next page of a listing is taken from, and
  // how many are kept for that.
  static constexpr double kListingAge_s = 2;
  static constexpr size_t kKept = 3;

  // Borrows the engine.
  explicit QueueViews(const Engine& engine, double slice_s = kSlice_s)
      : engine_(engine), slice_s_(slice_s) {}

  // Something was planned: places in line are others.
  void NotePlan() {
    line_.reset();
    planned_ = true;
  }
  // The job has begun or ceased to hold an accelerator.
  void NoteHolder(JobId job);

  bool is_counting() const { return counting_.has_value(); }
  // When CountSome may be called again.
  Time counts_due_at() const {
    return is_counting() ? -kNever : counts_due_at_;
  }
  // Counts jobs by state letters: begins, or goes on, for a slice. Whether
  // counts() has them all.
  bool CountSome(Time now);
  const Named<uint64_t>& counts() const { return counts_; }

  bool is_making() const { return making_ != nullptr; }
  // When Advance may be called again.
  Time due_at() const { return is_making() ? -kNever : due_at_; }
  // Begins a view, or goes on with the one that is being made. Returns it once
  // it is complete; null before.
  std::shared_ptr<const QueueView> Advance(Time now);
  // The last view that is complete, if it is young enough for the next page of
  // a listing; null: none is.
  std::shared_ptr<const QueueView> Recent(Time now) const;
  // The view that the listing began with; Recent if it is not kept any more.
  std::shared_ptr<const QueueView> ForPage(uint64_t cursor, Time now) const;
  // Views that are kept no longer: to be freed on another thread, because that
  // takes as long as copying the queue.
  using Dropped = std::vector<std::shared_ptr<const QueueView>>;
  Dropped TakeDropped() { return std::exchange(dropped_, {}); }

  // One job alone, whatever the number of jobs; without its rho where its app
  // is large (HasLargeApp), because that depends on all jobs of the app.
  JobView MakeOne(const Job& job, Time now) const;
  bool HasLargeApp(const Job& job) const;
  // The line of the last plan; null: no view has been made since.
  std::shared_ptr<PlanLine> line() const { return line_; }

 private:
  // A view that is being made.
  struct Making {
    std::shared_ptr<QueueView> view;
    // Jobs that have not changed are shared with the view before. So many of
    // its jobs have smaller ids than the next one (`passed`).
    std::shared_ptr<const QueueView> before;
    size_t passed = 0;
    size_t types = 0;  // of the cluster when it was begun
    // For the new line; none: the line is there already.
    std::optional<RoundTable> rows;
    // None: nobody has an app, and rho would double the time that the event
    // loop takes.
    std::optional<RhoProblem> rho;
    std::vector<JobId> changed_holders;  // of those that are copied already
    double work_s = 0;
  };
  struct Counting {
    JobId last;  // that is counted
    Named<uint64_t> counts;
    double work_s = 0;
  };
  void Begin();
  // Whether all jobs are copied.
  bool CopySome(Time now);
  void Copy(const Job& job, Time now);
  void Complete(Time now);

  const Engine& engine_;
  const double slice_s_;
  std::unique_ptr<Making> making_;
  std::deque<std::shared_ptr<const QueueView>> kept_;  // the last one last
  Dropped dropped_;
  uint64_t last_number_ = 0;
  std::shared_ptr<PlanLine> line_;
  bool planned_ = false;  // since the view that is being made was begun
  Time due_at_ = -kNever;
  std::optional<Counting> counting_;
  Named<uint64_t> counts_;
  Time counts_due_at_ = -kNever;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUEUE_VIEW_H_
