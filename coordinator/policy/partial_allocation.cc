#include "coordinator/policy/partial_allocation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/policy/policy.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

size_t Of(int index) { return static_cast<size_t>(index); }

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

bool IsRho(double rho) { return rho >= 1 / kRhoMax && rho <= kRhoMax; }

std::string RhoRemedy() {
  return absl::StrFormat("give a number from %g to %g", 1 / kRhoMax, kRhoMax);
}

absl::Status CheckRow(const AuctionOffer& offer, const BidRow& row,
                      const std::string& name) {
  if (!IsRho(row.rho)) {
    return Invalid(StrCat(name, ": rho is ", row.rho, "; ", RhoRemedy()));
  }
  if (row.bundle.parts.empty()) {
    return Invalid(
        StrCat(name,
               ": the bundle is empty; leave the row out, rho_nothing is for "
               "an empty bundle"));
  }
  int last = -1;
  for (const auto& [server, count] : row.bundle.parts) {
    if (server < 0 || Of(server) >= offer.free.size()) {
      return Invalid(StrCat(name, ": server ", server, " is not among the ",
                            offer.free.size(),
                            " of the offer; name servers that are"));
    }
    if (server <= last) {
      return Invalid(StrCat(name, ": server ", server, " comes after server ",
                            last, "; name each once, in ascending order"));
    }
    last = server;
    if (count < 1) {
      return Invalid(StrCat(name, ": ", count, " accelerators of server ",
                            server, "; ask for 1 or more"));
    }
    if (count > offer.free[Of(server)]) {
      return Invalid(StrCat(name, ": ", count, " accelerators of server ",
                            server, ", which offers ", offer.free[Of(server)],
                            "; ask for no more than that"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBid(const AuctionOffer& offer, const Bid& bid,
                      size_t* parts) {
  const std::string name = StrCat("bid ", bid.id.value());
  if (!bid.id.valid()) return Invalid("bid 0: give each bid an id from 1 on");
  if (bid.rows.size() > kBidRowsMax) {
    return Invalid(StrCat(name, ": ", bid.rows.size(), " rows; send the best ",
                          kBidRowsMax));
  }
  if (!IsRho(bid.rho_nothing)) {
    return Invalid(
        StrCat(name, ": rho_nothing is ", bid.rho_nothing, "; ", RhoRemedy()));
  }
  for (const BidRow& row : bid.rows) {
    *parts += row.bundle.parts.size();
    if (*parts > kAuctionPartsMax) {
      return Invalid(StrCat(name, ": with it the bundles name more than ",
                            kAuctionPartsMax,
                            " servers; send bundles of fewer servers"));
    }
  }
  for (size_t r = 0; r < bid.rows.size(); ++r) {
    GAVEL_RETURN_IF_ERROR(
        CheckRow(offer, bid.rows[r], StrCat(name, ", row ", r)));
  }
  return absl::OkStatus();
}

// The auction as a program whose form depends on neither the order of bids nor
// that of equal servers: bids ascend by id, servers by capacity and then by a
// hash of all rows that name them. Servers with the same of both are
// exchangeable, and any order of them gives the same program.
struct CanonicalForm {
  std::vector<size_t> bid;  // [bids] ascending by id: index into the bids
  std::vector<int> row;     // [rows of the program] index into Bid::rows
  std::vector<int> server;  // [servers] index into the offer
  BundleProgram program;
  double nothing = 0;  // sum of log(value) if nobody gets anything
};

// [servers] the servers of the offer in the canonical order.
std::vector<int> CanonicalServers(const AuctionOffer& offer,
                                  std::span<const Bid> bids,
                                  std::span<const size_t> order) {
  std::vector<uint64_t> hash(offer.free.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<BidRow>& rows = bids[order[i]].rows;
    for (size_t r = 0; r < rows.size(); ++r) {
      for (const auto& [server, count] : rows[r].bundle.parts) {
        uint64_t& of = hash[Of(server)];
        of = AddToHash(of, static_cast<double>(i * kBidRowsMax + r + 1));
        of = AddToHash(of, count);
      }
    }
  }
  std::vector<int> servers(offer.free.size());
  std::iota(servers.begin(), servers.end(), 0);
  std::sort(servers.begin(), servers.end(), [&](int a, int b) {
    if (offer.free[Of(a)] != offer.free[Of(b)]) {
      return offer.free[Of(a)] < offer.free[Of(b)];
    }
    return hash[Of(a)] != hash[Of(b)] ? hash[Of(a)] < hash[Of(b)] : a < b;
  });
  return servers;
}

CanonicalForm CanonicalOf(const AuctionOffer& offer,
                          std::span<const Bid> bids) {
  CanonicalForm form;
  form.bid.resize(bids.size());
  std::iota(form.bid.begin(), form.bid.end(), size_t{0});
  std::sort(form.bid.begin(), form.bid.end(),
            [&](size_t a, size_t b) { return bids[a].id < bids[b].id; });
  form.server = CanonicalServers(offer, bids, form.bid);
  std::vector<int> place(form.server.size());
  for (size_t s = 0; s < form.server.size(); ++s) {
    place[Of(form.server[s])] = static_cast<int>(s);
    form.program.capacity.push_back(offer.free[Of(form.server[s])]);
  }
  std::vector<BundlePart> parts;
  for (const size_t b : form.bid) {
    const Bid& bid = bids[b];
    form.nothing -= std::log(bid.rho_nothing);
    for (size_t r = 0; r < bid.rows.size(); ++r) {
      // A row that is no better than getting nothing only takes room.
      if (bid.rows[r].rho >= bid.rho_nothing) continue;
      parts = bid.rows[r].bundle.parts;
      for (BundlePart& part : parts) part.server = place[Of(part.server)];
      std::sort(parts.begin(), parts.end());
      form.program.AddRow(std::log(bid.rho_nothing / bid.rows[r].rho), parts);
      form.row.push_back(static_cast<int>(r));
    }
    form.program.EndBid();
  }
  return form;
}

// The choice among all bids, and for each bid that of the others without it.
struct Choices {
  BundleChoice all;
  std::vector<BundleChoice> without;  // [bids]; empty rows: not computed
  int computed = 0;
};

// Solves the programs of an auction.
class Chooser {
 public:
  Chooser(const BundleProgram& program, SolverChoice solver)
      : program_(program),
        highs_(solver == SolverChoice::kHighs),
        solver_(program, LimitsOf(program, solver)) {}

  Choices Choose() {
    // A choice without a bid may show a better one with it, which is taken;
    // exact choices show none.
    constexpr int kRoundsMax = 4;
    Choices choices;
    choices.all = highs_ ? ChooseByHighs(program_) : solver_.Solve();
    choices.computed = 1;
    choices.without.resize(Of(program_.bids()));
    for (int round = 0; round < kRoundsMax; ++round) {
      ChooseWithout(&choices);
      if (!Better(&choices)) break;
    }
    ChooseWithout(&choices);
    return choices;
  }

 private:
  static BundleLimits LimitsOf(const BundleProgram& program,
                               SolverChoice solver) {
    BundleLimits limits = LimitsFor(program.rows(), program.bids());
    if (solver == SolverChoice::kPrices) limits.finish_by_highs = false;
    return limits;
  }

  // The best choice without a bid that gets nothing is that of all bids, so
  // only bids with a row need one of their own.
  void ChooseWithout(Choices* choices) {
    const std::vector<int>& all = choices->all.row;
    for (int bid = 0; bid < program_.bids(); ++bid) {
      if (all[Of(bid)] == kNoRow) continue;
      BundleChoice& without = choices->without[Of(bid)];
      if (without.row.empty()) {
        without = highs_ ? ChooseByHighs(program_, bid)
                         : solver_.SolveWithout(bid, all);
        ++choices->computed;
      }
      const double known = GainOf(program_, all, bid);
      if (known <= without.gain) continue;
      without.gain = known;
      without.row = all;
      without.row[Of(bid)] = kNoRow;
      without.bound = std::max(without.bound, known);
    }
  }

  // Takes the best choice of all bids that a choice without one shows.
  bool Better(Choices* choices) const {
    std::vector<int> best;
    double best_gain = choices->all.gain;
    for (int bid = 0; bid < program_.bids(); ++bid) {
      const BundleChoice& without = choices->without[Of(bid)];
      if (without.row.empty()) continue;
      const int row = BestRow(bid, without.row);
      const double gain =
          without.gain + (row == kNoRow ? 0 : program_.Gain(row));
      if (gain <= best_gain + kMore) continue;
      best = without.row;
      best[Of(bid)] = row;
      best_gain = GainOf(program_, best);
    }
    if (best.empty()) return false;
    choices->all.row = std::move(best);
    choices->all.gain = best_gain;
    choices->all.bound = std::max(choices->all.bound, best_gain);
    return true;
  }

  // The best row of the bid that fits beside a choice without it.
  int BestRow(int bid, std::span<const int> row) const {
    std::vector<int> left = program_.capacity;
    for (const int r : row) {
      if (r == kNoRow) continue;
      for (const BundlePart& part : program_.Parts(r)) {
        left[Of(part.server)] -= part.count;
      }
    }
    int best = kNoRow;
    for (int r = program_.BidBegin(bid); r < program_.BidEnd(bid); ++r) {
      if (best != kNoRow && program_.Gain(r) <= program_.Gain(best)) continue;
      const auto parts = program_.Parts(r);
      if (std::all_of(parts.begin(), parts.end(), [&](const BundlePart& part) {
            return part.count <= left[Of(part.server)];
          })) {
        best = r;
      }
    }
    return best;
  }

  // Above rounding.
  static constexpr double kMore = 1e-11;

  const BundleProgram& program_;
  const bool highs_;
  BundleSolver solver_;
};

void FillOutcome(const Bid& bid, const CanonicalForm& form,
                 const Choices& choices, int i, size_t rotation,
                 BidOutcome* outcome) {
  outcome->id = bid.id;
  outcome->value = 1 / bid.rho_nothing;
  const int row = choices.all.row[Of(i)];
  if (row == kNoRow) return;
  outcome->row = form.row[Of(row)];
  outcome->value = 1 / bid.rows[Of(outcome->row)].rho;
  const BundleChoice& without = choices.without[Of(i)];
  const double others = GainOf(form.program, choices.all.row, i);
  outcome->fraction = std::min(1.0, std::exp(others - without.gain));
  outcome->fraction_least =
      std::min(outcome->fraction, std::exp(others - without.bound));
  // In the canonical order, so that equal servers lose alike.
  const auto parts = form.program.Parts(row);
  outcome->kept =
      FractionOf({{parts.begin(), parts.end()}}, outcome->fraction, rotation);
  for (BundlePart& part : outcome->kept.parts) {
    part.server = form.server[Of(part.server)];
  }
  std::sort(outcome->kept.parts.begin(), outcome->kept.parts.end());
}

void FillReport(const Choices& choices, AuctionResult* result) {
  result->iterations = choices.computed;
  result->solver = "prices";
  bool highs = choices.all.used_highs;
  for (const BundleChoice& without : choices.without) {
    highs = highs || without.used_highs;
  }
  if (highs) result->solver += ", highs-mip";
  const bool exact =
      result->gap <= kOptimalGapMax && result->fraction_gap <= kOptimalGapMax;
  result->outcome =
      exact ? SolveOutcome::kOptimal : SolveOutcome::kIterationLimit;
  if (exact) return;
  result->detail = absl::StrFormat(
      "the largest product may be larger by a part of %.3g, and a fraction "
      "smaller by one of %.3g",
      result->gap, result->fraction_gap);
}

}  // namespace

absl::Status CheckAuction(const AuctionOffer& offer,
                          std::span<const Bid> bids) {
  if (offer.free.size() > kAuctionServersMax) {
    return Invalid(StrCat("the offer has ", offer.free.size(),
                          " servers; offer at most ", kAuctionServersMax));
  }
  for (size_t s = 0; s < offer.free.size(); ++s) {
    if (offer.free[s] >= 0 && offer.free[s] <= kServerAcceleratorsMax) continue;
    return Invalid(StrCat("server ", s, ": ", offer.free[s],
                          " free accelerators; give a number from 0 to ",
                          kServerAcceleratorsMax));
  }
  if (bids.size() > kBidsMax) {
    return Invalid(StrCat(bids.size(), " bids; ask at most ", kBidsMax,
                          " apps in one auction"));
  }
  size_t parts = 0;
  std::vector<BidderId> ids;
  for (const Bid& bid : bids) {
    GAVEL_RETURN_IF_ERROR(CheckBid(offer, bid, &parts));
    ids.push_back(bid.id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return absl::OkStatus();
  return Invalid(StrCat("bid ", twice->value(),
                        ": there are two of it; send one bid of each app"));
}

Bundle FractionOf(const Bundle& bundle, double fraction, size_t rotation) {
  // By rounding, a product may be this much short of a whole number.
  constexpr double kRounding = 1e-9;
  const auto whole = [&](int count) {
    return std::min(count,
                    static_cast<int>(std::floor(fraction * count + kRounding)));
  };
  const size_t n = bundle.parts.size();
  Bundle kept;
  int size = 0;
  int given = 0;
  for (const BundlePart& part : bundle.parts) {
    size += part.count;
    kept.parts.push_back({part.server, whole(part.count)});
    given += kept.parts.back().count;
  }
  int more = whole(size) - given;
  for (size_t k = 0; k < n && more > 0; ++k) {
    const size_t at = (rotation + k) % n;
    if (kept.parts[at].count == bundle.parts[at].count) continue;
    ++kept.parts[at].count;
    --more;
  }
  std::erase_if(kept.parts,
                [](const BundlePart& part) { return part.count == 0; });
  return kept;
}

absl::StatusOr<AuctionResult> AllocatePartially(const AuctionOffer& offer,
                                                std::span<const Bid> bids,
                                                const AuctionOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckAuction(offer, bids));
  const CanonicalForm form = CanonicalOf(offer, bids);
  const Choices choices = Chooser(form.program, options.solver).Choose();
  AuctionResult result;
  result.bids.resize(bids.size());
  result.left = offer.free;
  for (size_t i = 0; i < bids.size(); ++i) {
    BidOutcome& outcome = result.bids[form.bid[i]];
    FillOutcome(bids[form.bid[i]], form, choices, static_cast<int>(i),
                options.rotation, &outcome);
    for (const auto& [server, count] : outcome.kept.parts) {
      result.left[Of(server)] -= count;
    }
    result.fraction_gap = std::max(
        result.fraction_gap, outcome.fraction / outcome.fraction_least - 1);
  }
  result.objective = form.nothing + choices.all.gain;
  result.bound = form.nothing + choices.all.bound;
  result.gap = std::expm1(choices.all.bound - choices.all.gain);
  FillReport(choices, &result);
  return result;
}

AuctionRooms::AuctionRooms(const PolicyProblem& problem) {
  if (!problem.placement_sensitive() || problem.hosts.empty()) {
    for (size_t type = 0; type < problem.capacity.size(); ++type) {
      const int count = problem.capacity[type];
      hosts_.push_back({AcceleratorId(), type, count});
      types_.push_back(type);
      free_.push_back(count);
    }
    return;
  }
  places_ = problem.places;
  std::map<std::tuple<size_t, int, int>, size_t> part_of;
  for (const PolicyHost& host : problem.hosts) {
    part_of.try_emplace({host.type, host.capacity, host.group}, 0);
  }
  for (auto& [like, part] : part_of) {
    part = types_.size();
    types_.push_back(std::get<0>(like));
  }
  free_.assign(types_.size(), 0);
  for (const PolicyHost& host : problem.hosts) {
    const size_t part = part_of.at({host.type, host.capacity, host.group});
    hosts_.push_back({host.id, part, host.capacity, host.group, host.rack});
    free_[part] += host.capacity;
  }
}

std::vector<size_t> AuctionRooms::PartsOf(size_t type) const {
  std::vector<size_t> parts;
  for (size_t part = 0; part < types_.size(); ++part) {
    if (types_[part] == type) parts.push_back(part);
  }
  return parts;
}

std::vector<size_t> AuctionRooms::HostsOf(size_t job) const {
  std::vector<size_t> hosts;
  const auto places =
      std::ranges::equal_range(places_, job, {}, &PolicyPlace::job);
  for (const PolicyPlace& place : places) hosts.push_back(place.host);
  std::ranges::sort(hosts);
  return hosts;
}

Locality AuctionRooms::LevelOf(size_t job, int scale_factor) const {
  const std::vector<size_t> hosts = HostsOf(job);
  if (hosts.size() > 1) {
    const int rack = hosts_[hosts.front()].rack;
    const bool near = rack >= 0 && std::ranges::all_of(hosts, [&](size_t h) {
                        return hosts_[h].rack == rack;
                      });
    return near ? Locality::kRack : Locality::kCluster;
  }
  const bool joined = !hosts.empty() && scale_factor > 1 &&
                      scale_factor <= hosts_[hosts.front()].group;
  return joined ? Locality::kGroup : Locality::kServer;
}

// The tightest fit; among those, one where the gang is in a group first.
std::optional<size_t> AuctionRooms::OneHost(
    int needed, std::span<const size_t> parts,
    std::span<const size_t> hosts) const {
  std::optional<std::tuple<bool, bool, int, size_t>> best;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    const Host& host = hosts_[h];
    if (host.free < needed || !std::ranges::binary_search(parts, host.part)) {
      continue;
    }
    const std::tuple key(needed > 1 && host.group < needed,
                         !std::ranges::binary_search(hosts, h), host.free, h);
    if (!best || key < *best) best = key;
  }
  return best ? std::optional(std::get<3>(*best)) : std::nullopt;
}

// Several servers with that many together: those of the rack that has the
// fewest left, if one has as many, the largest ones first. Empty: there are not
// as many.
std::vector<size_t> AuctionRooms::SeveralHosts(
    int needed, std::span<const size_t> parts) const {
  std::vector<size_t> all;
  std::map<int, int> by_rack;
  int sum = 0;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    const Host& host = hosts_[h];
    if (host.free == 0 || !std::ranges::binary_search(parts, host.part)) {
      continue;
    }
    all.push_back(h);
    sum += host.free;
    if (host.rack >= 0) by_rack[host.rack] += host.free;
  }
  if (sum < needed) return {};
  std::optional<std::pair<int, int>> best;  // what is free, and the rack
  for (const auto& [rack, free] : by_rack) {
    const std::pair key(free, rack);
    if (free >= needed && (!best || key < *best)) best = key;
  }
  if (best) {
    std::erase_if(all,
                  [&](size_t h) { return hosts_[h].rack != best->second; });
  }
  std::ranges::stable_sort(all, {}, [&](size_t h) { return -hosts_[h].free; });
  return all;
}

// The servers of a gang, in the order in which it takes from them. Empty: there
// are not as many accelerators.
std::vector<size_t> AuctionRooms::BestHosts(
    int needed, std::span<const size_t> parts,
    std::span<const size_t> hosts) const {
  const auto host = OneHost(needed, parts, hosts);
  return host ? std::vector{*host} : SeveralHosts(needed, parts);
}

std::optional<AuctionRooms::Place> AuctionRooms::Take(
    int scale_factor, const std::vector<size_t>& parts,
    std::span<const size_t> hosts) {
  std::vector<size_t> from = BestHosts(scale_factor, parts, hosts);
  if (from.empty()) {
    from = BestHosts(scale_factor, PartsOf(types_[parts.front()]), hosts);
  }
  if (from.empty()) return std::nullopt;
  Place place;
  place.host = hosts_[from.front()].id;
  place.level = scale_factor > 1 && scale_factor <= hosts_[from.front()].group
                    ? Locality::kGroup
                    : Locality::kServer;
  std::map<size_t, int> taken_of;  // by part
  int left = scale_factor;
  for (const size_t h : from) {
    Host& host = hosts_[h];
    const int taken = std::min(left, host.free);
    if (taken == 0) break;
    if (taken < scale_factor) {
      const int rack = hosts_[from.front()].rack;
      const bool near =
          rack >= 0 && host.rack == rack && place.level != Locality::kCluster;
      place.level = near ? Locality::kRack : Locality::kCluster;
      place.host = AcceleratorId();
    }
    host.free -= taken;
    free_[host.part] -= taken;
    taken_of[host.part] += taken;
    left -= taken;
  }
  place.parts.assign(taken_of.begin(), taken_of.end());
  return place;
}

}  // namespace gavel::policy
