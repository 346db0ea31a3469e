// Time received: the seconds that each unit (a job alone, or a packed pair)
// held accelerators of each type, altogether and since the last reset, and what
// it was owed. The engine owns one, adds to it as time passes, and gives it to
// the mechanism (Gavel section 5.1). A value without locks: not thread-safe.
//
// The seconds are those of the unit, not of its accelerators: a gang of 8 that
// ran for one round of 360 s has received 360 s. Whoever wants accelerator
// seconds multiplies by the scale factor.
#ifndef GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_
#define GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "core/ids.h"
#include "core/share_unit.h"

namespace gavel {

// How many times longer than time received deficits are remembered.
inline constexpr double kDeficitMemory = 24;

class TimeReceived {
 public:
  // `seconds` >= 0 and finite, anything else is not added: time received never
  // falls. `type` is an index into Cluster::types().
  void Add(const ShareUnit& unit, size_t type, double seconds);
  // The allocation meant the unit to have this much more: the deficit is that
  // less what was added. Same rules.
  void Owe(const ShareUnit& unit, size_t type, double seconds);
  // A job that has nothing on `type` yet begins with the figures that Rows gave
  // elsewhere.
  void Begin(JobId job, size_t type, double since_reset_s, double deficit_s);
  // A new allocation: time since the reset starts again. Deficits go on.
  void Reset();
  // A new allocation that goes on from the old one's time: what was given out
  // since the reset counts on, scaled down so that no unit has more than
  // `keep_s` seconds on any type. Fractions stay as they are; a long past
  // weighs no more than keep_s against a unit that has just come. Both sides of
  // the deficits are scaled in the same way, for kDeficitMemory times as long:
  // a debt that can't be paid fades, and no two of them end up equal.
  // Returns the factor of the deficits.
  double Age(double keep_s);
  // The job is over: what it had, alone or in pairs, no longer counts.
  void Remove(JobId job);

  // The job alone, and the pairs in which it has received something.
  std::vector<ShareUnit> UnitsOf(JobId job) const;
  // Sets both rows, by type. `since_reset`: seconds since the last reset,
  // RoundUnit::time_received_s. `deficit`: owed less received, over all resets;
  // positive: owed.
  void Rows(const ShareUnit& unit, size_t types,
            std::vector<double>& since_reset,
            std::vector<double>& deficit) const;

  // All state, for snapshots.
  struct Seconds {
    std::vector<double> since_reset;  // by type, as long as needed
    std::vector<double> owed;         // the two sides of the deficit
    std::vector<double> received;
  };
  template <class T>
  static auto State(T& t) {
    return std::tie(t.seconds_, t.pairs_);
  }

  // Add and Owe of one unit after another, which finds ascending ones without a
  // search. Borrows the TimeReceived, which nobody else may change meanwhile.
  class Booking {
   public:
    explicit Booking(TimeReceived& time);
    void Add(const ShareUnit& unit, size_t type, double seconds);
    void Owe(const ShareUnit& unit, size_t type, double seconds);

   private:
    Seconds& Of(const ShareUnit& unit);  // added when it is new

    TimeReceived& time_;
    std::map<ShareUnit, Seconds>::iterator entry_;  // the last one
  };

 private:
  std::map<ShareUnit, Seconds> seconds_;
  // The pairs of a job that have an entry above, from both sides.
  std::map<JobId, std::vector<ShareUnit>> pairs_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_JOBS_TIME_RECEIVED_H_
