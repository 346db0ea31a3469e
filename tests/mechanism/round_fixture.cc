#include "tests/mechanism/round_fixture.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/text.h"
#include "gtest/gtest.h"

namespace gavel::testing {

Cluster MakeCluster(const Servers& servers) {
  Cluster cluster;
  for (const auto& [server, types] : servers) {
    std::vector<AcceleratorInfo> accelerators;
    for (const std::string& type : types) {
      AcceleratorInfo& info = accelerators.emplace_back();
      info.type = type;
      info.uuid = StrCat(accelerators.size());
    }
    EXPECT_TRUE(cluster.Join(server, accelerators).ok());
  }
  return cluster;
}

RoundJob MakeJob(uint64_t id, int scale_factor, std::vector<double> share) {
  RoundJob job;
  job.id = JobId(id);
  job.scale_factor = scale_factor;
  job.time_received_s.assign(share.size(), 0.0);
  for (const double value : share) job.usable.push_back(value > 0);
  job.share = std::move(share);
  return job;
}

void Hold(const RoundAssignment& assignment, std::vector<RoundJob>& jobs) {
  for (RoundJob& job : jobs) {
    const auto found = assignment.find(job.id);
    job.holds = found == assignment.end() ? std::vector<AcceleratorId>()
                                          : found->second;
  }
}

std::vector<AcceleratorId> Ids(const std::vector<uint64_t>& ids) {
  std::vector<AcceleratorId> result;
  for (const uint64_t id : ids) result.emplace_back(id);
  return result;
}

std::string RoundErrors(const Cluster& cluster,
                        const std::vector<RoundJob>& jobs,
                        const RoundAssignment& assignment) {
  std::string errors;
  std::set<AcceleratorId> given;
  for (const auto& [id, accelerators] : assignment) {
    const auto job =
        std::find_if(jobs.begin(), jobs.end(),
                     [&](const RoundJob& entry) { return entry.id == id; });
    if (job == jobs.end()) return StrCat("job ", id.value(), " is unknown");
    if (accelerators.size() != static_cast<size_t>(job->scale_factor)) {
      StrAppend(&errors, "job ", id.value(), ": gang incomplete; ");
    }
    std::set<int> types;
    for (const AcceleratorId accelerator : accelerators) {
      types.insert(cluster.TypeOf(accelerator));
      if (!given.insert(accelerator).second) {
        StrAppend(&errors, "accelerator ", accelerator.value(), " twice; ");
      }
      if (cluster.accelerator(accelerator).state != AcceleratorState::kUsable) {
        StrAppend(&errors, accelerator.value(), " is not usable; ");
      }
    }
    if (types.size() != 1) StrAppend(&errors, id.value(), ": types mixed; ");
    if (!types.empty() && !job->usable[static_cast<size_t>(*types.begin())]) {
      StrAppend(&errors, id.value(), " can't use its type; ");
    }
  }
  return errors;
}

Cluster RandomCluster(std::mt19937_64& random) {
  const std::vector<std::string> types = {"v100", "p100", "k80"};
  const size_t types_count = 1 + random() % types.size();
  Servers servers;
  for (size_t s = 0; s < 1 + random() % 6; ++s) {
    std::vector<std::string> accelerators;
    const size_t first = random() % types_count;
    for (size_t a = 0; a < 1 + random() % 4; ++a) {
      // Mostly servers of one type, some mixed.
      const bool mixed = random() % 5 == 0;
      accelerators.push_back(types[mixed ? random() % types_count : first]);
    }
    servers.emplace_back(StrCat("server", s), accelerators);
  }
  return MakeCluster(servers);
}

std::vector<RoundJob> RandomJobs(const Cluster& cluster, size_t count,
                                 int scale_factor_max,
                                 std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const std::vector<int> capacity = cluster.Capacity();
  std::vector<RoundJob> jobs;
  for (size_t m = 0; m < count; ++m) {
    const int scale_factor =
        1 + static_cast<int>(random() % static_cast<size_t>(scale_factor_max));
    std::vector<double> share;
    for (const int available : capacity) {
      const bool none = available < scale_factor || random() % 4 == 0;
      share.push_back(none ? 0 : uniform(random));
    }
    jobs.push_back(MakeJob(m + 1, scale_factor, share));
  }
  // As large as the limits let them be.
  for (RoundJob& job : jobs) {
    const double sum = std::accumulate(job.share.begin(), job.share.end(), 0.0);
    for (double& share : job.share) share /= std::max(sum, 1e-9);
  }
  for (size_t j = 0; j < capacity.size(); ++j) {
    double used = 0;
    for (const RoundJob& job : jobs) used += job.scale_factor * job.share[j];
    if (used <= capacity[j]) continue;
    for (RoundJob& job : jobs) job.share[j] *= capacity[j] / used;
  }
  return jobs;
}

}  // namespace gavel::testing
