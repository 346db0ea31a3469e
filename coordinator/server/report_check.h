// Whether what workers report of their speed agrees with what else is known:
// their own count of steps, and this coordinator's clock.
// Figures that don't are left out before the engine schedules by them. A worker
// is the only witness of its steps: one that counts steps that it does not make
// is not found out here, but it shows them to everybody, and comes to its end
// by them. The coordinator's event loop owns one. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_REPORT_CHECK_H_
#define GAVEL_COORDINATOR_SERVER_REPORT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

class ReportCheck {
 public:
  // Messages take so much longer or shorter than the one before.
  static constexpr double kSlack_s = 5;
  // Processes at once; beyond, all are forgotten, so that the table does not
  // grow.
  static constexpr size_t kWorkersMax = 65536;

  // Each message that a worker or agent may send: notes what hellos and exits
  // tell, and checks reports. A line for the log about those whose speed is
  // left out, ever more rarely.
  std::optional<std::string> Take(Time now, Message* message);

  // A process says hello, with so many steps done. False: it was known.
  bool Saw(Time now, const WorkerKey& worker, uint64_t steps_done);
  // The window's steps are among those that its count went on by since the last
  // report with another count and a window, and it is no longer than the time
  // since then.
  // False: throughput and window are now 0, not known. A process that was not
  // seen before is believed.
  bool Check(Time now, const WorkerKey& worker, Progress* told);
  void Forget(const WorkerKey& worker) { last_.erase(worker); }

 private:
  struct Last {
    uint64_t steps_done = 0;
    Time at = 0;  // when it was told first
  };
  std::map<WorkerKey, Last> last_;
  uint64_t left_out_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_REPORT_CHECK_H_
