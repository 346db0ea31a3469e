// The servers of an auction: which parts an offer has, and where the gangs of a
// bundle would be. Called by themis.cc. A value; not thread-safe.
//
// Equal servers, with the same type, number of accelerators and groups, are one
// part of the offer: which of them a gang gets makes no difference to it, so
// bids need not tell them apart. If a problem has no servers, or says nothing
// of placement, each type is one part, and has room for every gang.
#ifndef GAVEL_COORDINATOR_POLICY_AUCTION_ROOMS_H_
#define GAVEL_COORDINATOR_POLICY_AUCTION_ROOMS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/locality.h"

namespace gavel::policy {

class AuctionRooms {
 public:
  // Borrows the problem.
  explicit AuctionRooms(const PolicyProblem& problem);

  // Free accelerators by part.
  const std::vector<int>& free() const { return free_; }
  size_t parts() const { return free_.size(); }
  size_t TypeOf(size_t part) const { return types_[part]; }
  std::vector<size_t> PartsOf(size_t type) const;  // ascending

  struct Place {
    Locality level = Locality::kServer;
    std::vector<std::pair<size_t, int>> parts;  // accelerators of each
    AcceleratorId host;  // names the one server; invalid: there are several
  };
  // Takes the accelerators of a gang: in these parts while they have room, on
  // one server if one has, else of one rack, else on the fewest; and where they
  // have no room, in any part of their type. `parts`: of one type, ascending,
  // not empty. `hosts` (ascending) come first among servers that serve as well.
  // nullopt: there are not as many.
  std::optional<Place> Take(int scale_factor, const std::vector<size_t>& parts,
                            std::span<const size_t> hosts = {});
  // Indices into PolicyProblem::hosts where the job is now, ascending, and the
  // level that they have.
  std::vector<size_t> HostsOf(size_t job) const;
  Locality LevelOf(size_t job, int scale_factor) const;

 private:
  struct Host {
    AcceleratorId id;
    size_t part = 0;
    int free = 0;
    int group = 0;
    int rack = -1;
  };
  std::vector<size_t> BestHosts(int needed, std::span<const size_t> parts,
                                std::span<const size_t> hosts) const;
  std::optional<size_t> OneHost(int needed, std::span<const size_t> parts,
                                std::span<const size_t> hosts) const;
  std::vector<size_t> SeveralHosts(int needed,
                                   std::span<const size_t> parts) const;

  std::span<const PolicyPlace> places_;  // the problem's, by job
  std::vector<Host> hosts_;
  std::vector<size_t> types_;  // by part, ascending
  std::vector<int> free_;      // by part
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_AUCTION_ROOMS_H_
