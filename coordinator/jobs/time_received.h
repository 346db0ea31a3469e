// Time received: the seconds that each job held accelerators of each type,
// altogether and since the last reset. The engine owns one, adds to it at the
// end of each round, and gives it to the mechanism (Gavel section 5.1). A value
// without locks: not thread-safe.
//
// The seconds are those of the job, not of its accelerators: a gang of 8 that
// ran for one round of 360 s has received 360 s. Whoever wants accelerator
// seconds multiplies by the scale factor.
#ifndef GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_
#define GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_

#include <cstddef>
#include <map>
#include <vector>

#include "core/ids.h"

namespace gavel {

class TimeReceived {
 public:
  // `seconds` >= 0 and finite, anything else is not added: time received never
  // falls. `type` is an index into Cluster::types().
  void Add(JobId job, size_t type, double seconds);
  // A new allocation: time since the reset starts again, for jobs that come
  // later too, at `head_start_s` on every type. Gavel takes half a round: with
  // 0 every job is infinitely behind on every type in which it has the smallest
  // share, and gets a whole round there first.
  void Reset(double head_start_s = 0);
  // A new allocation that goes on from the old one's time: what was given out
  // since the reset counts on, scaled down so that no job has more than
  // `keep_s` seconds on any type. Fractions stay as they are; a long past
  // weighs no more than keep_s against a job that has just come.
  void Age(double keep_s);
  // The job is over. Its time no longer counts.
  void Remove(JobId job);

  // Seconds on all types since the job began. 0 for a job not seen.
  double Total(JobId job) const;
  // [types] seconds by type since the job began.
  std::vector<double> TotalByType(JobId job, size_t types) const;
  // [types] seconds by type since the last reset, the head start included:
  // RoundJob::time_received_s.
  std::vector<double> SinceReset(JobId job, size_t types) const;
  // [types] the same as fractions of `elapsed_s` > 0, without the head start:
  // to be held against the allocation. `gavel why` prints both.
  std::vector<double> ShareSinceReset(JobId job, size_t types,
                                      double elapsed_s) const;

 private:
  struct Seconds {
    std::vector<double> total;        // by type, as long as needed
    std::vector<double> since_reset;  // same length, without the head start
  };
  std::map<JobId, Seconds> seconds_;
  double head_start_s_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_
