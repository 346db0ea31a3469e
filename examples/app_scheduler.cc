// Bids for the trials of one search (docs/apps.md). The coordinator expects
// that each trial runs to its end. This program knows better: the search keeps
// the better half of its trials, so it expects half of the work, and gives
// accelerators to the trials that are the furthest.
//
//   ./app_scheduler search-12
//
// Needs no LibTorch. With keys set GAVEL_KEY_FILE and GAVEL_COORDINATOR_KEY.
#include "gavel/app_scheduler.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

class Search : public gavel::AppScheduler {
 public:
  double Rho(const Offer& offer) override {
    std::vector<int> held(offer.types.size(), 0);
    for (const Job& job : offer.jobs) {
      if (job.running_on >= 0) held.at(job.running_on) += job.scale_factor;
    }
    return RhoWith(offer, held);
  }

  // A row for each number of accelerators of each type.
  RhoTable Bid(const Offer& offer) override {
    RhoTable table;
    table.rho_nothing = RhoWith(offer, {});
    for (size_t type = 0; type < offer.types.size(); ++type) {
      int useful = 0;
      for (const Job& job : offer.jobs) {
        if (job.steps_per_s[type] > 0) useful += job.scale_factor;
      }
      useful = std::min(useful, offer.accelerators[type]);
      const int step = 1 + useful / 32;
      for (int count = step; count <= useful && table.rows.size() < 256;
           count += step) {
        Row row;
        row.accelerators.assign(offer.types.size(), 0);
        row.accelerators[type] = count;
        row.rho = RhoWith(offer, row.accelerators);
        table.rows.push_back(row);
      }
    }
    return table;
  }

  std::vector<Place> Divide(const Offer& offer,
                            const std::vector<int>& won) override {
    std::vector<Job> furthest = offer.jobs;
    std::stable_sort(
        furthest.begin(), furthest.end(),
        [](const Job& a, const Job& b) { return a.steps_done > b.steps_done; });
    std::vector<int> left = won;
    std::vector<Place> places;
    for (const Job& job : furthest) {
      for (size_t type = 0; type < left.size(); ++type) {
        if (job.steps_per_s[type] <= 0 || job.scale_factor > left[type]) {
          continue;
        }
        left[type] -= job.scale_factor;
        places.push_back({job.id, static_cast<int>(type)});
        break;
      }
    }
    return places;
  }

 private:
  // With nothing, the app waits for a round and then has an accelerator.
  static double RhoWith(const Offer& offer, const std::vector<int>& has) {
    constexpr double kPartThatRuns = 0.5;
    double rate = 0;  // parts of the work left in a second
    double slowest_s = 1;
    for (size_t type = 0; type < offer.types.size(); ++type) {
      double work_s = 0;  // on one accelerator
      for (const Job& job : offer.jobs) {
        if (job.steps_per_s[type] <= 0) continue;
        work_s += job.steps_left / job.steps_per_s[type] * job.scale_factor;
      }
      work_s *= kPartThatRuns;
      slowest_s = std::max(slowest_s, work_s);
      if (has.size() > type && work_s > 0) rate += has[type] / work_s;
    }
    const double left_s = rate > 0 ? 1 / rate : offer.round_s + slowest_s;
    return (offer.age_s + left_s) / offer.ideal_s;
  }
};

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: app_scheduler APP\n");
    return 2;
  }
  gavel::AppSchedulerOptions options;
  options.app = argv[1];
  options.on_notice = [](const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
  };
  Search search;
  const gavel::Status status = gavel::RunAppScheduler(search, options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
