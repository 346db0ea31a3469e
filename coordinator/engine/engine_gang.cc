// Gangs: what several ranks of a job need of each other (design section 5).
// Rank 0 is granted first and opens a store for its epoch; its address comes
// with its next request, and then the others are granted.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/worker_limits.h"
#include "core/rules.h"

namespace gavel {

// Rank 0 of a gang tells where its store listens: with every request, so a
// coordinator that starts again hears it again.
void Engine::NoteGang(Job& job, const Worker& worker,
                      const LeaseRequest& request) {
  if (!job.is_gang() || !request.holding || request.gang_address.empty() ||
      request.epoch != worker.held_epoch || worker.held_epoch != job.epoch) {
    return;
  }
  if (job.gang_epoch == job.epoch && job.gang_address == request.gang_address) {
    return;
  }
  job.gang_epoch = job.epoch;
  job.gang_address = request.gang_address;
  for (int rank = 1; rank < job.world_size; ++rank) {
    Notify(job, rank);
  }
  Flush();
}

// A rank that has no store yet to meet the others at.
bool Engine::WaitsForGang(const Job& job, int rank, uint64_t epoch) {
  return rank > 0 && job.gang_epoch != epoch &&
         Rules::Hold(Rule::kGangStoreIsOfEpoch);
}

// One rank is gone, so the others can't go on either: they are ended, and all
// start again from the last generation.
void Engine::RestartGang(Time now, Job& job) {
  for (Worker& worker : job.workers) {
    if (!worker.is_live()) continue;
    worker.restarting = true;
    TellToStop(now, job, worker, options_.stop_grace_s);
  }
}

// As torchrun says it: which of the ranks on its server, how many there are,
// and which of the servers, in the order of their first ranks. True of the
// launch; a process that stays while others move keeps what it was told.
void Engine::AddPlaceInGang(const Job& job, int rank,
                            LaunchWorker& launch) const {
  auto& environment = launch.environment;
  const std::vector<AcceleratorId>& where =
      job.assigned.empty() ? PlannedFor(job) : job.assigned;
  // Its server may be another one by now: then it is alone there.
  const std::string& own = job.workers[static_cast<size_t>(rank)].server;
  int local_rank = 0;
  int local_world_size = 0;
  size_t group = 0;
  std::vector<std::string_view> servers;  // before its own
  for (size_t other = 0; other < where.size(); ++other) {
    const std::string& server = cluster_.accelerator(where[other]).server;
    if (server == own) {
      if (static_cast<int>(other) < rank) ++local_rank;
      ++local_world_size;
    } else if (local_world_size == 0 &&
               std::ranges::find(servers, server) == servers.end()) {
      servers.push_back(server);
    }
  }
  if (local_world_size > 0) group = servers.size();
  environment.emplace_back("LOCAL_RANK", std::to_string(local_rank));
  environment.emplace_back("LOCAL_WORLD_SIZE",
                           std::to_string(std::max(1, local_world_size)));
  environment.emplace_back("GROUP_RANK", std::to_string(group));
  if (!job.spec.elastic()) return;
  environment.emplace_back("GAVEL_WORLD_SIZE_MIN",
                           std::to_string(job.spec.LeastWorkers()));
  environment.emplace_back("GAVEL_WORLD_SIZE_MAX",
                           std::to_string(job.spec.MostWorkers()));
}

// A worker stopped on its own (its lease ran out, the accelerator was not to be
// had, its gang did not come together): no lease of this epoch again, for any
// of the gang.
void Engine::GiveUpEpoch(Time now, Job& job, ReleaseCause cause) {
  if (Rules::Hold(Rule::kGivenUpEpochEnds)) ++job.epoch;
  if (job.is_gang() && cause == ReleaseCause::kResumeFailed &&
      ++job.failed_starts >= StartsMax(job)) {
    if (GiveUpSize(now, job)) return;
    return EndJob(now, job, JobState::kHeld,
                  Reason{ReasonCode::kHeldGang, std::to_string(job.id.value()),
                         static_cast<double>(job.failed_starts), 0});
  }
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) {
      Pause(now, job, static_cast<int>(rank), PauseTier::kPark);
    }
  }
}

}  // namespace gavel
