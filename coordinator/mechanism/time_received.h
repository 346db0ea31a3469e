// The seconds for which each unit (a job alone, or a packed pair) held
// accelerators of each type, in total and since the last reset, and the seconds
// that the allocations owed it. The engine owns one TimeReceived, adds to it as
// time passes, and passes it to the mechanism (Gavel section 5.1). A value
// without locks: not thread-safe.
//
// Seconds count once per unit, not once per accelerator: a gang of 8 that ran
// for one round of 360 s has received 360 s. Multiply by the scale factor for
// accelerator seconds.
#ifndef GAVEL_COORDINATOR_MECHANISM_TIME_RECEIVED_H_
#define GAVEL_COORDINATOR_MECHANISM_TIME_RECEIVED_H_

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "core/ids.h"

namespace gavel {

// Deficits are remembered this many times as long as time received; see Age().
inline constexpr double kDeficitMemory = 24;

class TimeReceived {
 public:
  // Adds time that the unit has received. `type` is an index into
  // Cluster::types(). Ignores `seconds` that are not finite or not above 0, so
  // that time received never falls.
  void Add(const ShareUnit& unit, size_t type, double seconds);
  // Adds time that the allocation meant the unit to receive. The deficit is the
  // time owed less the time received. The rules for `type` and `seconds` are
  // those of Add.
  void Owe(const ShareUnit& unit, size_t type, double seconds);
  // Gives a job that has no time on `type` yet the values that Rows returned
  // elsewhere.
  void Begin(JobId job, size_t type, double since_reset_s, double deficit_s);
  // Sets the time since the reset to 0, for a new allocation. Deficits are
  // kept.
  void Reset();
  // For a new allocation that continues from the time of the old one. Instead
  // of a reset, the time since the reset is scaled down so that no unit has
  // more than `keep_s` seconds on any type. Fractions stay the same, and a long
  // past weighs no more than keep_s against a unit that has just arrived. Time
  // owed and time received, over all resets, are scaled by one common factor to
  // at most kDeficitMemory * keep_s: a debt that can't be paid fades, and
  // different deficits stay different. Returns the factor of the deficits.
  double Age(double keep_s);
  // Forgets the time of a job that has ended, alone and in pairs.
  void Remove(JobId job);

  // Returns the job alone, and the pairs in which time was recorded for it.
  std::vector<ShareUnit> UnitsOf(JobId job) const;
  // Sets both rows, by type. `since_reset`: seconds received since the last
  // reset (RoundUnit::time_received_s). `deficit`: seconds owed less seconds
  // received, over all resets; positive if the unit is owed time.
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

  // Does Add and Owe for one unit after another. Units in ascending order are
  // found without a search. Borrows the TimeReceived, which must not be changed
  // in another way meanwhile.
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
  // The pairs in seconds_, listed under each of their two jobs.
  std::map<JobId, std::vector<ShareUnit>> pairs_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_TIME_RECEIVED_H_
