// Bids for an app in the auctions of the policy `themis`, in place of the
// coordinator, and divides what the app wins between its jobs (docs/apps.md).
//
//   class Search : public gavel::AppScheduler { ... };
//   Search search;
//   gavel::AppSchedulerOptions options;
//   options.app = "search-12";
//   gavel::Status status = gavel::RunAppScheduler(search, options);
//
// A bid that is late (1 s), malformed or asks for more than is offered does not
// count: the coordinator bids for the app then, and on_notice tells why.
//
// One thread; nothing throws. Needs no LibTorch.
#ifndef GAVEL_APP_SCHEDULER_H_
#define GAVEL_APP_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gavel/status.h"

namespace gavel {

class AppScheduler {
 public:
  // A job of the app that has not ended.
  struct Job {
    uint64_t id = 0;
    int scale_factor = 1;  // accelerators that it needs, all of one type
    double steps_done = 0;
    double steps_left = 0;  // of its steps_total; 0: not known
    int running_on = -1;    // the index of a type; -1: it waits
    // By type, with the whole gang; 0: it can't run there.
    std::vector<double> steps_per_s;
  };

  // The accelerators of the next round, which are all of the cluster.
  struct Offer {
    std::vector<std::string> types;
    std::vector<int> accelerators;  // by type
    double round_s = 0;
    double age_s = 0;  // since the first job of the app was submitted
    // T_id, by the throughputs that the coordinator knows: the time that the
    // app takes alone on the whole cluster, times the average number of apps.
    double ideal_s = 0;
    std::vector<Job> jobs;  // the first ones, if they are many hundreds
  };

  // The finish-time fairness with a bundle of accelerators:
  // (age_s + the time that the work left then takes) / ideal_s.
  struct Row {
    std::vector<int> accelerators;  // by type, not all 0
    double rho = 0;                 // > 0
  };
  struct RhoTable {
    double rho_nothing = 0;  // without accelerators in the next round; > 0
    std::vector<Row> rows;   // at most 256
  };

  struct Place {
    uint64_t job = 0;
    int type = 0;
  };

  virtual ~AppScheduler() = default;
  // rho with what the app has now. The apps with the largest take part in the
  // auction.
  virtual double Rho(const Offer& offer) = 0;
  // The auction chooses at most one row. It is so that no false table gets the
  // app more than the true one.
  virtual RhoTable Bid(const Offer& offer) = 0;
  // Returns which jobs run where on the accelerators that the app got, `won` by
  // type. The coordinator divides those that are left, or all if it is empty.
  virtual std::vector<Place> Divide(const Offer& offer,
                                    const std::vector<int>& won) = 0;
};

struct AppSchedulerOptions {
  std::string app;    // of the job files
  std::string owner;  // of the jobs; empty: that of the key. Operators set it
  // "HOST:PORT"; empty: GAVEL_COORDINATOR, or 127.0.0.1:7077 without it.
  std::string coordinator;
  // The owner's or an operator's key, and the coordinator's public key or its
  // file. Empty: GAVEL_KEY_FILE and GAVEL_COORDINATOR_KEY. Without any the
  // coordinator must be on this machine.
  std::string key_file;
  std::string coordinator_key;
  // Looked at ten times a second: true ends RunAppScheduler. May be null.
  const std::atomic<bool>* stop = nullptr;
  // Lines for people: why the coordinator acted for the app, and whether it
  // answers.
  std::function<void(const std::string& line)> on_notice;
};

// Serves until the app has ended or `stop` is set, and reconnects by itself;
// then it is OK. kNotFound: the app has no job. kInvalidArgument: the options.
// kFailedPrecondition: the key may not bid for this app, or another process
// that was started later does. kUnavailable: the coordinator refuses the key.
// kInternal: the scheduler threw.
GAVEL_EXPORT Status RunAppScheduler(AppScheduler& scheduler,
                                    const AppSchedulerOptions& options);

}  // namespace gavel

#endif  // GAVEL_APP_SCHEDULER_H_
