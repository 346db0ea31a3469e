// Bids for an app, for auction_kills_end_to_end_test.cc: alike for each of its
// jobs, in their order.
//   auction_bidder APP COORDINATOR LOG VICTIM
// Each bid adds a line to the file LOG. If there is a file VICTIM with the id
// of a process and the word "bid" or "divide", that process is killed before
// the next bid or division is sent, while the auction waits for it; the file is
// removed first. An id of 0 is this process.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gavel/app_scheduler.h"

namespace {

class Bidder : public gavel::AppScheduler {
 public:
  Bidder(std::string log, std::string victim)
      : log_(std::move(log)), victim_(std::move(victim)) {}

  double Rho(const Offer& offer) override {
    return 2.0 * static_cast<double>(offer.jobs.size());
  }
  RhoTable Bid(const Offer& offer) override {
    std::ofstream(log_, std::ios::app) << "bid\n";
    KillBefore("bid");
    RhoTable table;
    table.rho_nothing = Rho(offer);
    int wanted = 0;
    for (const Job& job : offer.jobs) wanted += job.scale_factor;
    wanted = std::min(wanted, offer.accelerators.at(0));
    for (int count = 1; count <= wanted; ++count) {
      Row row;
      row.accelerators.assign(offer.types.size(), 0);
      row.accelerators[0] = count;
      row.rho = table.rho_nothing / (1 + count);
      table.rows.push_back(row);
    }
    return table;
  }
  std::vector<Place> Divide(const Offer& offer,
                            const std::vector<int>& won) override {
    KillBefore("divide");
    std::vector<Place> places;
    int left = won.at(0);
    for (const Job& job : offer.jobs) {
      if (job.scale_factor > left) continue;
      left -= job.scale_factor;
      places.push_back({job.id, 0});
    }
    return places;
  }

 private:
  void KillBefore(const std::string& answer) {
    pid_t pid = -1;
    std::string before;
    if (!(std::ifstream(victim_) >> pid >> before) || pid < 0) return;
    if (before != answer) return;
    unlink(victim_.c_str());
    kill(pid == 0 ? getpid() : pid, SIGKILL);
  }

  const std::string log_;
  const std::string victim_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  gavel::AppSchedulerOptions options;
  options.app = argv[1];
  options.coordinator = argv[2];
  options.on_notice = [](const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
  };
  Bidder bidder(argv[3], argv[4]);
  const gavel::Status status = gavel::RunAppScheduler(bidder, options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
