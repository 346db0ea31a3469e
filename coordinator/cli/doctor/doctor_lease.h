// The coordinator of the one worker that `gavel doctor` watches: it grants an
// accelerator, asks for it back once, and grants another. Follows
// docs/protocol.md in what a worker can see of it. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_LEASE_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_LEASE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/router.h"

namespace gavel {

class DoctorLease {
 public:
  // Binds a free port of this machine; errors as of Router::Bind.
  static absl::StatusOr<std::unique_ptr<DoctorLease>> Open(
      AcceleratorInfo first, AcceleratorInfo second);

  const std::string& endpoint() const { return router_->endpoint(); }

  // Answers what has come; never waits. Times are seconds of any clock that
  // does not fall.
  void Turn(Time now);
  // Asks for the lease back; as soon as it is there, the second is granted.
  // Nothing before the first grant, and but once.
  void Interrupt(Time now);

  bool asked() const { return !peer_.empty(); }  // a worker ever spoke
  bool granted() const { return granted_; }
  bool interrupted() const { return interrupted_at_ >= 0; }
  bool released() const { return released_; }
  bool resumed() const { return resumed_; }  // runs under the second lease
  // Once released(): the steps done by then, and the time that took.
  uint64_t paused_after_step() const { return paused_after_step_; }
  double pause_s() const { return pause_s_; }
  // As the worker told it last: time lost to saving, releasing and restoring.
  double lost_s() const { return lost_s_; }

 private:
  DoctorLease(std::unique_ptr<Router> router, AcceleratorInfo first,
              AcceleratorInfo second);
  void Take(Time now, const Message& message);
  void TakeRelease(Time now, uint64_t steps_done);
  Message AnswerTo(const LeaseRequest& request);
  void Send(const Message& message);

  std::unique_ptr<Router> router_;
  AcceleratorInfo accelerators_[2];
  std::string peer_;
  WorkerKey worker_;
  uint64_t epoch_ = 1;  // 1: the first lease, 2: the second
  bool granted_ = false;
  bool released_ = false;
  bool resumed_ = false;
  Time interrupted_at_ = -1;
  Time asked_again_at_ = 0;
  uint64_t paused_after_step_ = 0;
  double pause_s_ = 0;
  double lost_s_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_LEASE_H_
