#include "coordinator/policy/own_bids.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/partial_allocation.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

static_assert(kOwnBidRowsMax <= kBidRowsMax);

absl::Status InvalidBid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

absl::Status CheckRho(double rho, const std::string& name) {
  if (rho >= 1 / kRhoMax && rho <= kRhoMax) return absl::OkStatus();
  return InvalidBid(absl::StrFormat("%s is %g; give a number from %g to %g",
                                    name, rho, 1 / kRhoMax, kRhoMax));
}

absl::Status CheckRow(const OwnBidRow& row, const std::string& name,
                      std::span<const std::string> types,
                      std::span<const int> accelerators) {
  GAVEL_RETURN_IF_ERROR(CheckRho(row.rho, StrCat(name, ": rho")));
  if (row.bundle.empty()) {
    return InvalidBid(
        StrCat(name,
               ": it asks for no accelerators; leave the row out, "
               "rho_nothing tells its rho"));
  }
  int last = -1;
  for (const auto& [type, count] : row.bundle) {
    if (type <= last || static_cast<size_t>(type) >= accelerators.size()) {
      return InvalidBid(
          StrCat(name, ": type ", type,
                 " is out of place; name types of the offer (0 to ",
                 static_cast<int>(accelerators.size()) - 1,
                 "), each once, in ascending order"));
    }
    last = type;
    const auto index = static_cast<size_t>(type);
    if (count < 1 || count > accelerators[index]) {
      return InvalidBid(StrCat(name, ": it asks for ", count, " ", types[index],
                               "; ask for 1 to ", accelerators[index]));
    }
  }
  return absl::OkStatus();
}

// Null: it is not of the problem.
const PolicyJob* Find(const PolicyProblem& problem, JobId id) {
  const auto found =
      std::ranges::lower_bound(problem.jobs, id, {}, &PolicyJob::id);
  return found == problem.jobs.end() || found->id != id ? nullptr : &*found;
}

}  // namespace

absl::Status CheckOwnBid(const OwnBid& bid, std::span<const std::string> types,
                         std::span<const int> accelerators) {
  if (bid.rows.size() > kOwnBidRowsMax) {
    return InvalidBid(StrCat("the bid has ", bid.rows.size(),
                             " rows; send the best ", kOwnBidRowsMax));
  }
  GAVEL_RETURN_IF_ERROR(CheckRho(bid.rho, "rho"));
  GAVEL_RETURN_IF_ERROR(CheckRho(bid.rho_nothing, "rho_nothing"));
  for (size_t r = 0; r < bid.rows.size(); ++r) {
    GAVEL_RETURN_IF_ERROR(
        CheckRow(bid.rows[r], StrCat("row ", r), types, accelerators));
  }
  return absl::OkStatus();
}

std::vector<std::vector<int>> AcceleratorsOf(
    const PolicyProblem& problem, std::span<const TypeAssignment> assignment) {
  std::vector<std::vector<int>> counts(
      problem.apps.size(), std::vector<int>(problem.types.size(), 0));
  for (const TypeAssignment& entry : assignment) {
    const PolicyJob* job = Find(problem, entry.unit.job);
    if (job == nullptr || job->app < 0) continue;
    counts[static_cast<size_t>(job->app)][entry.type] += job->scale_factor;
  }
  return counts;
}

namespace {

// Takes the accelerators of the places from `room`, which is the app's by type.
absl::Status TakePlaces(const PolicyProblem& problem, const Assigner& assigner,
                        int app, std::span<const JobPlace> places,
                        std::vector<int>& room) {
  std::set<JobId> named;
  for (const auto& [id, type] : places) {
    const std::string name = StrCat("job ", id.value());
    const PolicyJob* job = Find(problem, id);
    if (job == nullptr || job->app != app) {
      return InvalidBid(
          StrCat(name,
                 " is no active job of the app; name those of the "
                 "offer"));
    }
    if (!named.insert(id).second) {
      return InvalidBid(StrCat(name, " has two places; name each job once"));
    }
    const auto row = static_cast<size_t>(job - problem.jobs.data());
    const auto index = static_cast<size_t>(type);
    if (type < 0 || index >= room.size() ||
        !(assigner.Throughput(row, index) > 0)) {
      return InvalidBid(
          StrCat(name, " can't run on type ", type,
                 "; choose one where its steps_per_s is above 0"));
    }
    room[index] -= job->scale_factor;
    if (room[index] < 0) {
      return InvalidBid(StrCat(name, ": the app has not won so many ",
                               problem.types[index],
                               "; divide only what it has won"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::map<int, absl::Status> Divide(
    const PolicyProblem& problem,
    const std::map<int, std::vector<JobPlace>>& places,
    std::vector<TypeAssignment>& assignment) {
  const Assigner assigner(problem);
  std::vector<std::vector<int>> rooms = AcceleratorsOf(problem, assignment);
  std::map<int, absl::Status> statuses;
  std::vector<TypeAssignment> divided;
  std::map<JobId, size_t> named;  // index into `divided`
  for (const auto& [app, of_app] : places) {
    const absl::Status status = TakePlaces(problem, assigner, app, of_app,
                                           rooms[static_cast<size_t>(app)]);
    statuses[app] = status;
    if (!status.ok()) continue;
    for (const auto& [id, type] : of_app) {
      named.emplace(id, divided.size());
      divided.push_back({{id, JobId()}, static_cast<size_t>(type)});
    }
  }
  for (const TypeAssignment& entry : assignment) {
    const PolicyJob* job = Find(problem, entry.unit.job);
    const auto status =
        job == nullptr ? statuses.end() : statuses.find(job->app);
    if (status != statuses.end() && status->second.ok()) {
      if (const auto at = named.find(job->id); at != named.end()) {
        TypeAssignment& now = divided[at->second];
        if (now.type == entry.type) now = entry;  // on the same host
        continue;
      }
      int& room = rooms[static_cast<size_t>(job->app)][entry.type];
      if (job->scale_factor > room) continue;
      room -= job->scale_factor;
    }
    divided.push_back(entry);
  }
  assignment = std::move(divided);
  return statuses;
}

}  // namespace gavel::policy
