// The coordinator of the workers that `gavel profile` and `gavel reproduce
// preemption` run: it grants each what it is to run on, until it is told to
// take that back, and keeps what it reports. Follows docs/protocol.md in what a
// worker can see of it. Not thread-safe.
#ifndef GAVEL_STUDY_PROFILE_PROFILE_LEASES_H_
#define GAVEL_STUDY_PROFILE_PROFILE_LEASES_H_

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
  uint64_t epoch = 1;                   // of its lease
  double lease_s = 60;       // extended as long as it is not taken back
  std::string gang_address;  // rank 0's store
  std::vector<ProfileReport> reports;
  uint64_t steps_done = 0;
  Time stepped_at = 0;  // when it last rose
  bool out_of_memory = false;
  std::string error;  // that it ended with, in its own words
  // Of the present epoch, rank 0's; negative: not yet.
  Time granted_at = -1;
  Time asked_at = -1;  // to give it back
  Time released_at = -1;
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

  // Of a job of one worker: asks for its lease, until it is released; and gives
  // it one of the next epoch.
  void TakeBack(Time now, size_t job, PauseTier tier);
  void GiveAgain(size_t job);

  const std::vector<ProfiledJob>& jobs() const { return jobs_; }

 private:
  explicit ProfileLeases(std::unique_ptr<Router> router)
      : router_(std::move(router)) {}
  ProfiledJob* Find(const WorkerKey& worker);
  void Take(Time now, const std::string& peer, const Message& message);
  static void NoteRelease(ProfiledJob& job, const LeaseReleased& released);
  Message AnswerTo(Time now, ProfiledJob& job, const LeaseRequest& request);
  void AskBack(Time now, size_t job);
  void Send(size_t job, const Message& message);

  // How rank 0 of each job is reached, and how it is asked.
  struct Contact {
    std::string peer;
    PauseTier tier = PauseTier::kPark;
    Time asked_again_at = 0;
  };

  std::unique_ptr<Router> router_;
  uint64_t incarnation_ = 0;
  std::vector<ProfiledJob> jobs_;
  std::vector<Contact> contacts_;  // of each
};

}  // namespace gavel

#endif  // GAVEL_STUDY_PROFILE_PROFILE_LEASES_H_
