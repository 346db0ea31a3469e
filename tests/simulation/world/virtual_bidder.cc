#include "tests/simulation/world/virtual_bidder.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

namespace gavel {
namespace {

constexpr double kHelloInterval_s = 2;
// A process that lies says this many times its rho.
constexpr double kLie = 5;

// The seconds that the work left of the app takes on these accelerators of the
// offer, by type; infinity for none that a job can use.
double SecondsLeft(const BidRequest& offer, const std::vector<int>& counts) {
  double longest_s = 0;
  double area_s = 0;  // accelerator-seconds
  int used = 0;
  for (const OfferedJob& job : offer.jobs) {
    double fastest = 0;
    for (size_t type = 0; type < counts.size(); ++type) {
      if (counts[type] < job.scale_factor) continue;
      fastest = std::max(fastest, job.steps_per_s[type]);
    }
    if (!(fastest > 0)) continue;
    const double left_s = std::max(1.0, job.steps_left) / fastest;
    longest_s = std::max(longest_s, left_s);
    area_s += left_s * job.scale_factor;
    used += job.scale_factor;
  }
  if (used == 0) return std::numeric_limits<double>::infinity();
  int accelerators = 0;
  for (const int count : counts) accelerators += count;
  return std::max(longest_s, area_s / std::min(accelerators, used));
}

double RhoWith(const BidRequest& offer, const std::vector<int>& counts,
               double wait_s) {
  const double left_s = SecondsLeft(offer, counts);
  return (offer.age_s + wait_s + left_s) / std::max(1e-3, offer.ideal_s);
}

}  // namespace

VirtualBidder::VirtualBidder(BidderKey key, BidHabit habit, size_t server,
                             VirtualWorld& world)
    : key_(std::move(key)), habit_(habit), server_(server), world_(world) {
  SayHello();
}

void VirtualBidder::After(double delay_s, std::function<void()> task) {
  world_.queue.After(
      delay_s, [life = std::weak_ptr<int>(life_), task = std::move(task)] {
        if (!life.expired()) task();
      });
}

void VirtualBidder::SayHello() {
  world_.to_coordinator(server_, BidderHello{key_});
  After(kHelloInterval_s, [this] { SayHello(); });
}

void VirtualBidder::Receive(const Message& message) {
  std::visit([this](const auto& m) { Answer(m); }, message);
}

double VirtualBidder::Delay() const {
  constexpr double kPrompt_s_max = 0.2;
  constexpr double kLate_s_max = 4;
  return world_.Draw() *
         (habit_ == BidHabit::kLate ? kLate_s_max : kPrompt_s_max);
}

void VirtualBidder::Answer(const BidRequest& offer) {
  offer_ = offer;
  if (habit_ == BidHabit::kSilent) return;
  After(Delay(), [this, offer] {
    BidReply reply{key_, offer.auction, BidFor(offer)};
    if (habit_ == BidHabit::kMalformed || habit_ == BidHabit::kOverCapacity) {
      Spoil(offer, reply.bid);
    }
    world_.auctions.Bid(reply);
    world_.to_coordinator(server_, std::move(reply));
  });
}

void VirtualBidder::Answer(const DivideRequest& won) {
  if (habit_ == BidHabit::kSilent) return;
  After(Delay(), [this, won] {
    DivideReply reply{key_, won.auction, Divide(won)};
    if (habit_ == BidHabit::kMalformed) Spoil(reply.places);
    world_.to_coordinator(server_, std::move(reply));
  });
}

// A row for each bundle of two types or one.
OwnBid VirtualBidder::BidFor(const BidRequest& offer) const {
  const size_t types = offer.types.size();
  std::vector<int> now(types, 0);
  std::vector<int> all = offer.accelerators;
  for (const OfferedJob& job : offer.jobs) {
    if (job.running_on < 0) continue;
    now[static_cast<size_t>(job.running_on)] += job.scale_factor;
  }
  const auto bounded = [](double rho) { return std::clamp(rho, 1e-6, 1e6); };
  OwnBid bid;
  bid.rho_nothing = bounded(RhoWith(offer, all, offer.round_s));
  bid.rho = std::min(bid.rho_nothing, bounded(RhoWith(offer, now, 0)));
  if (habit_ == BidHabit::kLying) bid.rho = bounded(kLie * bid.rho);
  std::vector<int> counts(types, 0);
  const auto add = [&] {
    OwnBidRow row;
    for (size_t type = 0; type < types; ++type) {
      if (counts[type] > 0) {
        row.bundle.emplace_back(static_cast<int>(type), counts[type]);
      }
    }
    row.rho = bounded(RhoWith(offer, counts, 0));
    const bool pays = !row.bundle.empty() && row.rho < bid.rho_nothing;
    if (pays && bid.rows.size() < kOwnBidRowsMax) bid.rows.push_back(row);
  };
  for (size_t a = 0; a < types; ++a) {
    for (counts[a] = 1; counts[a] <= offer.accelerators[a]; ++counts[a]) {
      add();
      for (size_t b = a + 1; b < types; ++b) {
        for (counts[b] = 1; counts[b] <= offer.accelerators[b]; ++counts[b]) {
          add();
        }
        counts[b] = 0;
      }
    }
    counts[a] = 0;
  }
  return bid;
}

// The jobs with the most steps left come first. Now and then the coordinator is
// to decide.
std::vector<JobPlace> VirtualBidder::Divide(const DivideRequest& won) const {
  std::vector<JobPlace> places;
  if (world_.Happens(0.2)) return places;
  std::vector<OfferedJob> jobs = offer_.jobs;
  std::ranges::stable_sort(jobs, std::ranges::greater{},
                           &OfferedJob::steps_left);
  std::vector<int> left = won.won;
  for (const OfferedJob& job : jobs) {
    for (size_t type = 0; type < left.size(); ++type) {
      const bool fits =
          habit_ == BidHabit::kOverCapacity || left[type] >= job.scale_factor;
      if (!fits || type >= job.steps_per_s.size() ||
          !(job.steps_per_s[type] > 0)) {
        continue;
      }
      left[type] -= job.scale_factor;
      places.push_back({job.job, static_cast<int>(type)});
      break;
    }
  }
  return places;
}

void VirtualBidder::Spoil(const BidRequest& offer, OwnBid& bid) const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (habit_ == BidHabit::kOverCapacity) {
    const int all = offer.accelerators.empty() ? 0 : offer.accelerators[0];
    bid.rows.push_back({{{0, all + 1}}, 1e-6});
    return;
  }
  switch (world_.random() % 6) {
    case 0:
      bid.rho = kNan;
      break;
    case 1:
      bid.rho_nothing = -1;
      break;
    case 2:
      bid.rows.push_back({{}, 1});
      break;
    case 3:
      bid.rows.push_back({{{static_cast<int>(offer.types.size()), 1}}, 1});
      break;
    case 4:
      bid.rows.push_back({{{0, -1}}, 1});
      break;
    default:
      bid.rows.assign(kOwnBidRowsMax + 1, {{{0, 1}}, 1});
  }
}

void VirtualBidder::Spoil(std::vector<JobPlace>& places) const {
  switch (world_.random() % 4) {
    case 0:
      places.push_back({JobId(), 0});
      break;
    case 1:
      places.push_back({JobId(1'000'000), 0});
      break;
    case 2:
      places.push_back({JobId(1), -1});
      break;
    default:
      if (!places.empty()) places.push_back(places.front());
  }
}

}  // namespace gavel
