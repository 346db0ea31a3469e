// Lease machines of two jobs that share one accelerator, against a simple
// reference coordinator, over a network that drops, doubles, delays and
// reorders, with clocks that drift and a coordinator that restarts. By seed.
#include <random>

#include "runtime/lease/lease_machine.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr double kLease_s = 3;
constexpr double kRound_s = 7;
constexpr double kDrift = 0.02;
constexpr double kEnd_s = 120;
constexpr int kSeeds = 3000;

// Grants one accelerator to one job after the other. Its clock is true time.
class ReferenceCoordinator {
 public:
  // The answer to `request`, if any.
  std::vector<Message> Answer(Time now, const LeaseRequest& request) {
    const JobId job = request.worker.job;
    if (request.nonce <= nonce_seen_[job]) return {};
    nonce_seen_[job] = request.nonce;
    if (!request.holding) Released(job, request.released_epoch);
    Renew(now);
    if (job == owner_ && now < round_ends_ && request.released_epoch < epoch_) {
      LeaseGrant grant;
      grant.worker = request.worker;
      grant.position = position_;
      grant.epoch = epoch_;
      grant.nonce = request.nonce;
      grant.duration_s = std::min(kLease_s, round_ends_ - now);
      free_at_ = std::max(free_at_, now + grant.duration_s * (1 + kDrift));
      granted_ = true;
      return {grant};
    }
    return {LeaseDenied{request.worker, position_, epoch_, request.nonce, 0.5}};
  }

  void Released(JobId job, uint64_t epoch) {
    if (job == owner_ && epoch == epoch_ && granted_) free_at_ = 0;
  }

  // A new round: the other job's turn, once the accelerator is free.
  void Renew(Time now) {
    if (now < round_ends_ || now < free_at_) return;
    owner_ = owner_ == JobId(1) ? JobId(2) : JobId(1);
    ++epoch_;
    granted_ = false;
    round_ends_ = now + kRound_s;
  }

  // Forgets what it granted, and waits for as long as any lease can run.
  void Restart(Time now) {
    position_ = {position_.term + 1, 0};
    free_at_ = now + kLease_s * (1 + kDrift);
    round_ends_ = now;
    nonce_seen_.clear();
  }

  std::vector<Message> Notify(const WorkerKey& worker, Time now, bool pause) {
    Renew(now);
    if (worker.job != owner_) return {};
    if (pause) return {PauseRequest{worker, position_, epoch_}};
    return {LeaseNotice{worker, position_, epoch_}};
  }

 private:
  JournalPosition position_ = {1, 1};
  JobId owner_ = JobId(2);
  uint64_t epoch_ = 0;
  bool granted_ = false;
  Time round_ends_ = 0;
  Time free_at_ = 0;
  std::map<JobId, uint64_t> nonce_seen_;
};

// A worker's process: trains at once, stops a while after it is told to, and
// never past its lease (its steps are infinitely short).
struct Worker {
  WorkerKey key;
  double rate = 1;  // of its clock
  double origin = 0;
  LeaseMachine machine;
  bool training = false;
  bool parks = false;  // training has stopped, Parked is due
  uint64_t epoch = 0;
  Time deadline = 0;
  std::map<uint64_t, Time> sent_at = {};  // own clock, by nonce
  uint64_t latest_nonce = 0;
  uint64_t resumed = 0;

  Time Clock(Time now) const { return origin + now * rate; }
  Time True(Time clock) const { return (clock - origin) / rate; }
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    for (uint64_t job = 1; job <= 2; ++job) {
      const WorkerKey key{JobId(job), 0, 1};
      workers_.push_back(Worker{.key = key,
                                .rate = 1 + Uniform(-0.009, 0.009),
                                .origin = Uniform(0, 1000),
                                .machine = LeaseMachine({.worker = key})});
    }
    drop_ = Uniform(0, 0.4);
    delay_s_ = Uniform(0.001, 2);
  }

  void Run() {
    for (Worker& worker : workers_) {
      Do(worker, lease_event::Started{{}, 1});
    }
    for (Time next = 1; now_ < kEnd_s && !failed();) {
      const Time wakes = Wakes();
      if (std::min(wakes, next) == next) {
        now_ = next;
        Disturb();
        next = now_ + Uniform(0.2, 3);
      } else {
        now_ = std::max(now_, wakes);
        Deliver();
        TickAll();
      }
    }
  }

  uint64_t resumed() const { return workers_[0].resumed + workers_[1].resumed; }
  static bool failed() { return Test::HasFailure(); }

 private:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool Chance(double p) { return Uniform(0, 1) < p; }

  Time Wakes() {
    Time next = kNever;
    if (!network_.empty()) next = network_.begin()->first;
    for (const Worker& worker : workers_) {
      const Time due = worker.machine.NextDeadline();
      if (due != kNever) next = std::min(next, worker.True(due));
    }
    return next;
  }

  // Drops, doubles, delays; reorders by different delays.
  void Send(bool to_worker, size_t index, const Message& message) {
    const int copies = Chance(drop_) ? 0 : Chance(0.15) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const Time arrives = now_ + Uniform(0, Chance(0.05) ? 10 : delay_s_);
      network_.emplace(arrives, Parcel{to_worker, index, message});
    }
  }

  void Deliver() {
    while (!network_.empty() && network_.begin()->first <= now_) {
      const Parcel parcel = network_.begin()->second;
      network_.erase(network_.begin());
      if (parcel.to_worker) {
        Do(workers_[parcel.index],
           lease_event::MessageReceived{parcel.message});
        continue;
      }
      if (const auto* m = std::get_if<LeaseRequest>(&parcel.message)) {
        for (const Message& answer : coordinator_.Answer(now_, *m)) {
          Send(true, parcel.index, answer);
        }
      } else if (const auto* r = std::get_if<LeaseReleased>(&parcel.message)) {
        coordinator_.Released(r->worker.job, r->epoch);
      }
    }
  }

  void TickAll() {
    for (Worker& worker : workers_) {
      const Time due = worker.machine.NextDeadline();
      if (worker.True(due) > now_) continue;
      // At the very deadline, as the worker's own clock reads it.
      DoAt(worker, std::max(due, worker.Clock(now_)), lease_event::Tick{});
      EXPECT_GT(worker.machine.NextDeadline(), due) << "busy loop";
    }
  }

  void Disturb() {
    const size_t index = Chance(0.5) ? 0 : 1;
    Worker& worker = workers_[index];
    if (worker.parks) {
      worker.parks = false;
      Do(worker, lease_event::Parked{worker.epoch, {}});
    } else if (Chance(0.1)) {
      coordinator_.Restart(now_);
    } else if (Chance(0.5)) {
      for (const Message& message :
           coordinator_.Notify(worker.key, now_, Chance(0.3))) {
        Send(true, index, message);
      }
    } else {
      Do(worker, lease_event::Tick{});
    }
    TickAll();
  }

  void Do(Worker& worker, const LeaseEvent& event) {
    DoAt(worker, worker.Clock(now_), event);
  }

  void DoAt(Worker& worker, Time clock, const LeaseEvent& event) {
    const size_t index = worker.key.job == JobId(1) ? 0 : 1;
    for (const LeaseAction& action : worker.machine.Step(clock, event)) {
      if (const auto* send = std::get_if<lease_action::Send>(&action)) {
        if (const auto* m = std::get_if<LeaseRequest>(&send->message)) {
          EXPECT_GT(m->nonce, worker.latest_nonce);
          worker.latest_nonce = m->nonce;
          worker.sent_at[m->nonce] = clock;
        }
        Send(false, index, send->message);
      } else {
        Obey(worker, clock, event, action);
      }
    }
    Check(worker, clock);
  }

  void Obey(Worker& worker, Time clock, const LeaseEvent& event,
            const LeaseAction& action) {
    if (const auto* resume = std::get_if<lease_action::Resume>(&action)) {
      EXPECT_FALSE(worker.training) << "resumed twice";
      EXPECT_FALSE(worker.parks) << "resumed while parking";
      EXPECT_TRUE(epochs_run_.insert(resume->epoch).second)
          << "epoch " << resume->epoch << " ran twice";
      worker.training = true;
      worker.epoch = resume->epoch;
      worker.deadline = resume->deadline;
      ++worker.resumed;
      CheckGrant(worker, event, resume->deadline);
    } else if (const auto* extend =
                   std::get_if<lease_action::Extend>(&action)) {
      worker.deadline = extend->deadline;
      CheckGrant(worker, event, extend->deadline);
    } else if (std::holds_alternative<lease_action::Pause>(action)) {
      worker.parks = worker.parks || worker.training;
      worker.training = false;
    }
    EXPECT_TRUE(!worker.training || clock < worker.deadline);
  }

  // A lease follows from the grant of the latest nonce, and is no longer than
  // that, counted from when the request was sent.
  void CheckGrant(const Worker& worker, const LeaseEvent& event,
                  Time deadline) {
    const auto* heard = std::get_if<lease_event::MessageReceived>(&event);
    ASSERT_NE(heard, nullptr);
    const auto* grant = std::get_if<LeaseGrant>(&heard->message);
    ASSERT_NE(grant, nullptr);
    EXPECT_EQ(grant->nonce, worker.latest_nonce);
    EXPECT_LE(deadline,
              worker.sent_at.at(grant->nonce) + grant->duration_s + 1e-9);
  }

  void Check(const Worker& worker, Time clock) {
    EXPECT_FALSE(worker.training && clock >= worker.deadline)
        << "trains at " << clock << " past its lease's end " << worker.deadline;
    EXPECT_FALSE(workers_[0].training && workers_[1].training)
        << "two workers on one accelerator at " << now_;
    if (worker.training &&
        worker.machine.state() == LeaseMachine::State::kResuming) {
      workers_[worker.key.job == JobId(1) ? 0 : 1].machine.Step(
          clock, lease_event::Resumed{worker.epoch});
    }
  }

  struct Parcel {
    bool to_worker;
    size_t index;
    Message message;
  };

  std::mt19937_64 random_;
  double drop_ = 0;
  double delay_s_ = 0;
  Time now_ = 0;
  ReferenceCoordinator coordinator_;
  std::vector<Worker> workers_;
  std::multimap<Time, Parcel> network_;
  std::set<uint64_t> epochs_run_;
};

TEST(LeaseProperty, NeverTwoWorkersOnOneAcceleratorNorOnePastItsLease) {
  uint64_t resumed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    World world(seed);
    world.Run();
    resumed += world.resumed();
    if (World::failed()) return;
  }
  // The faults must leave something to be tested.
  EXPECT_GT(resumed, uint64_t{kSeeds} * 3);
}

}  // namespace
}  // namespace gavel
