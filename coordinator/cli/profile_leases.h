// The coordinator of the workers that `gavel profile` runs: it grants each what
// it is to run on, for as long as it runs, and keeps what it reports. Follows
// docs/protocol.md in what a worker can see of it. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_PROFILE_LEASES_H_
#define GAVEL_COORDINATOR_CLI_PROFILE_LEASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/router.h"

namespace gavel {

// What rank 0 of a job told: that it made so many steps/s over the `window_s`
// before `at`.
struct ProfileReport {
  Time at = 0;
  double steps_per_s = 0;
  double window_s = 0;
};

struct ProfiledJob {
  std::vector<AcceleratorInfo> places;  // by rank
  int slots = 2;                        // of each: 1 beside another job
  std::string gang_address;             // rank 0's store
  std::vector<ProfileReport> reports;
  uint64_t steps_done = 0;
  Time stepped_at = 0;  // when it last rose
  bool out_of_memory = false;
  std::string error;  // that it ended with, in its own words
};

class ProfileLeases {
 public:
  // Binds a free port of this machine; errors as of Router::Bind.
  static absl::StatusOr<std::unique_ptr<ProfileLeases>> Open();

  const std::string& endpoint() const { return router_->endpoint(); }

  // Job i + 1 is jobs[i] from now on, its workers of the incarnation that is
  // returned; those of before get no more leases.
  uint64_t Begin(std::vector<ProfiledJob> jobs);
  // Answers what has come, and waits for at most so long for more. Times are
  // seconds of any clock that does not fall.
  void Turn(Time now, double wait_s);

  const std::vector<ProfiledJob>& jobs() const { return jobs_; }

 private:
  explicit ProfileLeases(std::unique_ptr<Router> router)
      : router_(std::move(router)) {}
  ProfiledJob* Find(const WorkerKey& worker);
  void Take(Time now, const std::string& peer, const Message& message);
  Message AnswerTo(ProfiledJob& job, const LeaseRequest& request);

  std::unique_ptr<Router> router_;
  uint64_t incarnation_ = 0;
  std::vector<ProfiledJob> jobs_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PROFILE_LEASES_H_
