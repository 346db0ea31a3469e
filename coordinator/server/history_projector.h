// Events in, rows of history out: what the coordinator writes beside each
// journal row, and what a replay of the rows gives again. Reads the engine
// after the event; decides nothing.
//
// Not thread-safe. A function of the journal: the same rows give the same
// history.
#ifndef GAVEL_COORDINATOR_SERVER_HISTORY_PROJECTOR_H_
#define GAVEL_COORDINATOR_SERVER_HISTORY_PROJECTOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/history_tables.h"

namespace gavel {

class HistoryProjector {
 public:
  // The rows that the durable `event`, row `seq` of the journal, changes.
  // `engine` has already taken the event.
  std::vector<HistoryRow> Observe(uint64_t seq, Time now, const Event& event,
                                  const Engine& engine);

  // Save and restore the state about jobs that are not over. DATA_LOSS:
  // damaged.
  std::string Save() const;
  absl::Status Load(std::string_view saved);

  // Seconds since 1970 of the engine's `now`.
  double WallTime(Time now) const { return now + wall_offset_s_; }
  // As the present term was begun; empty and 0: not told.
  const std::string& policy() const { return policy_; }
  double round_duration_s() const { return round_duration_s_; }

  // ---- Save writes these

  struct OpenLease {
    HistoryLease row;
    Time since = 0;
    uint64_t incarnation = 0;
  };
  struct Rate {
    double steps = 0;
    double seconds = 0;
  };
  struct OpenJob {
    HistoryJob row;                   // as it was last written
    std::map<int, OpenLease> leases;  // by rank
    std::map<std::string, Rate> rates;
    uint64_t reports = 0;
    uint64_t reports_kept = 0;
    uint64_t stride = 1;
    // The state that the last notice about it reported, and whether there was
    // one about its deadline.
    JobState told = JobState::kActive;
    bool at_risk = false;
  };

 private:
  struct Observation;  // of one event

  double wall_offset_s_ = 0;
  std::string policy_;
  double round_duration_s_ = 0;
  std::map<JobId, OpenJob> jobs_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_HISTORY_PROJECTOR_H_
