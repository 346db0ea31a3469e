// A coordinator without scheduling, for tools and tests. It grants the workers
// of a few jobs the leases that its caller decides on, asks for them back, and
// records what the workers report. It follows docs/protocol.md as far as a
// worker can observe it. Nothing is journaled, and the term is always 1. Used
// by `gavel doctor`, `gavel profile` and `gavel reproduce preemption` for the
// programs that they run, and by tests through CoordinatorThread
// (tests/support).
//
// Not thread-safe.
#ifndef GAVEL_RUNTIME_TRANSPORT_LEASE_GRANTER_H_
#define GAVEL_RUNTIME_TRANSPORT_LEASE_GRANTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

// Rank 0 reported this rate for the `window_s` seconds before `at`.
struct ReportedRate {
  Time at = 0;
  double steps_per_s = 0;
  double window_s = 0;
};

// The terms of a job's leases. They may be changed at any time; a change takes
// effect with the next grant or renewal.
struct LeaseTerms {
  std::vector<AcceleratorInfo> places;  // by rank
  int slots = 2;                        // of each place; 1: shared with a job
  uint64_t memory_limit_bytes = 0;      // of a shared place; 0: no limit
  double duration_s = 60;
};

struct LeasedJob {
  LeaseTerms terms;
  uint64_t epoch = 1;        // of the present lease; 0: none is granted yet
  uint64_t steps_done = 0;   // by rank 0, the most so far
  std::string gang_address;  // of rank 0's store
  // Times of rank 0 in the present epoch; negative: it has not happened yet.
  Time granted_at = -1;
  Time asked_at = -1;  // asked to give the lease back
  Time released_at = -1;
  bool runs = false;  // rank 0 has said that it trains under the present epoch
  // From the messages of rank 0.
  bool heard = false;    // it has sent a message
  Time stepped_at = 0;   // when steps_done last rose
  double pausing_s = 0;  // time lost to pauses; see Progress
  std::vector<ReportedRate> rates;
  // Set if a worker failed or could not use its lease.
  bool out_of_memory = false;
  std::string error;
};

class LeaseGranter {
 public:
  // Called with each message before it is answered.
  using Listener = std::function<void(const Incoming&)>;

  // `endpoint` and the errors are those of Router::Bind.
  static absl::StatusOr<std::unique_ptr<LeaseGranter>> Open(
      const std::string& endpoint = "tcp://127.0.0.1:0",
      Listener listener = nullptr);

  const std::string& endpoint() const { return router_->endpoint(); }

  // From now on JobId i + 1 is jobs[i]. Returns the incarnation of its workers;
  // later incarnations are accepted, too. Workers of earlier incarnations get
  // no answer.
  uint64_t Begin(std::vector<LeasedJob> jobs);
  // Waits at most `wait_s` for a message, and answers all messages that have
  // arrived. `now`: seconds of any clock that does not fall.
  void Turn(Time now, double wait_s);

  // Asks rank 0 of a job for its lease until rank 0 releases it. The job gets
  // no grants until GrantNext().
  void TakeBack(Time now, size_t job, PauseTier tier);
  // Grants a lease of the next epoch from now on.
  void GrantNext(size_t job);
  // Sends `message`, with worker and position filled in, to rank 0 of a job.
  // Drops it if rank 0 has sent nothing yet.
  template <class M>
  void Tell(size_t job, M message) {
    message.worker = contacts_[job].worker;
    message.position = {kTerm, jobs_[job].epoch};
    Send(job, std::move(message));
  }

  const std::vector<LeasedJob>& jobs() const { return jobs_; }
  LeaseTerms& terms(size_t job) { return jobs_[job].terms; }
  // The same as in Router. Turn() returns at a Wake.
  Waker& waker() { return router_->waker(); }
  void Cut(const Incoming& incoming) { router_->Cut(incoming); }

 private:
  static constexpr uint64_t kTerm = 1;

  // The peer by which rank 0 of a job is reached, and the state of asking it
  // for its lease.
  struct Contact {
    std::string peer;  // empty: it has sent nothing yet
    WorkerKey worker;
    bool asking = false;
    PauseTier tier = PauseTier::kPark;
    Time ask_at = 0;
  };

  LeaseGranter(std::unique_ptr<Router> router, Listener listener)
      : router_(std::move(router)), listener_(std::move(listener)) {}
  // Returns null if `worker` is not a worker of a present job.
  LeasedJob* Find(const WorkerKey& worker);
  void Take(Time now, const Incoming& incoming);
  void TakeReport(Time now, LeasedJob& job, const StepReport& report);
  void TakeRelease(Time now, LeasedJob& job, const LeaseReleased& released);
  void TakeEnd(LeasedJob& job, const WorkerFinished& end);
  Message AnswerTo(Time now, LeasedJob& job, const LeaseRequest& request);
  void AskBack(Time now, size_t job);
  void Send(size_t job, const Message& message);
  Contact& ContactOf(const WorkerKey& worker) {
    return contacts_[worker.job.value() - 1];
  }

  std::unique_ptr<Router> router_;
  Listener listener_;
  uint64_t incarnation_ = 0;
  std::vector<LeasedJob> jobs_;
  std::vector<Contact> contacts_;  // by job
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_LEASE_GRANTER_H_
