// The apps that are present: groups of jobs of one owner with one goal
// (JobSpec::app), and jobs without an app, each an app of its own. For each app
// it keeps what finish-time fairness needs (Themis, NSDI'20, section 3): when
// it began, how many apps were present on average since then, and the work of
// its jobs that have ended. An app ends with the last of its jobs; jobs that
// are submitted under its name later begin a new one.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_APPS_H_
#define GAVEL_COORDINATOR_ENGINE_APPS_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

// An app of several jobs, or one that may get more.
struct App {
  Time began_at = 0;
  double presence = 0;   // AppTable's integral when it began
  std::set<JobId> jobs;  // that have not ended; not empty between steps
  // The work of its jobs that have ended, as each would have run alone on the
  // type where it is fastest: the longest, in seconds, and the sum, in
  // accelerator-seconds.
  double ended_longest_s = 0;
  double ended_area_s = 0;
};

class AppTable {
 public:
  // The owner and the name of the app.
  using Key = std::pair<std::string, std::string>;

  // A job was submitted: counts its app, and notes in the job when it came.
  void Add(Time now, Job& job);
  // The job has ended; it would have run `alone_s` seconds alone on the type
  // where it is fastest. `goes_on`: further elements of its array follow, so
  // the app stays also without jobs. The end of an element that was never added
  // ends an app without jobs, too, if none follows.
  void End(Time now, const Job& job, double alone_s, bool goes_on);

  // The job's app; null: the job is an app of its own.
  const App* Find(const Job& job) const;
  const std::map<Key, App>& all() const { return apps_; }
  size_t present() const { return present_; }
  // The time average of the number of apps present since this one began, and of
  // a job that is an app of its own since it was submitted; >= 1.
  double AveragePresent(const App& app, Time now) const;
  double AveragePresent(const Job& job, Time now) const;

  // Call this after State was read: adds the apps of live jobs that an older
  // snapshot lacks.
  void Rebuild(const JobTable& jobs);
  static auto State(auto& t) {
    return std::tie(t.apps_, t.present_, t.presence_, t.counted_at_);
  }

 private:
  double PresenceAt(Time now) const;
  void CountTo(Time now);
  double AverageSince(Time began_at, double presence, Time now) const;

  std::map<Key, App> apps_;
  uint64_t present_ = 0;
  double presence_ = 0;  // integral of present_ over time, up to counted_at_
  Time counted_at_ = 0;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_APPS_H_
