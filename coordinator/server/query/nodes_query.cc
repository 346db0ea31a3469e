#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/query.h"
#include "coordinator/server/query/row_json.h"
#include "core/text.h"

namespace gavel {
namespace {

// Its agent has ended in order.
bool HasLeft(const Accelerator& accelerator, const Engine& engine) {
  const auto agent = engine.agents().find(accelerator.server);
  return agent != engine.agents().end() && agent->second.left;
}

std::string_view AcceleratorStateName(const Accelerator& accelerator,
                                      const Engine& engine, bool held,
                                      bool starting, bool stands_still) {
  if (accelerator.state == AcceleratorState::kLost) return "lost";
  if (accelerator.state == AcceleratorState::kUnreachable) {
    return HasLeft(accelerator, engine) ? "down" : "unreachable";
  }
  if (engine.quarantined().contains(accelerator.id)) return "quarantined";
  if (accelerator.drained || accelerator.leaving) {
    return held || starting ? "draining" : "drained";
  }
  if (!held) return starting ? "starting" : "idle";
  return stands_still ? "hung" : "allocated";
}

struct Nodes {
  Nodes(const Engine& of, Time at) : engine(of), now(at) {
    for (const auto& [id, job] : engine.jobs()) {
      if (const auto still = engine.StandstillOf(job)) {
        hung.insert(job.workers[static_cast<size_t>(still->rank)].held);
      }
      for (const Worker& worker : job.workers) {
        if (worker.held_epoch != 0) holders.emplace(worker.held, id);
        AddStarting(job, static_cast<size_t>(&worker - job.workers.data()));
        if (!worker.is_parked()) continue;
        parked_bytes[worker.server] += worker.progress.host_bytes;
        if (worker.kept_on.valid()) kept.emplace(worker.kept_on, id);
      }
    }
  }

  bool InUse(AcceleratorId id) const {
    return holders.contains(id) || starting.contains(id);
  }
  // A process that holds no lease, and is not parked for a later one.
  // One that has lost its accelerator already counts for all of its server that
  // are to be free.
  void AddStarting(const Job& job, size_t rank) {
    const Worker& worker = job.workers[rank];
    if (!worker.is_live() || worker.held_epoch != 0) return;
    if (worker.is_parked() && !worker.leaving) return;
    if (worker.launched_on.valid()) {
      starting.emplace(worker.launched_on, job.id);
      return;
    }
    const Cluster& cluster = engine.cluster();
    if (!worker.leaving && rank < job.assigned.size() &&
        cluster.accelerator(job.assigned[rank]).server == worker.server) {
      starting.emplace(job.assigned[rank], job.id);
      return;
    }
    const auto server = cluster.servers().find(worker.server);
    if (server == cluster.servers().end()) return;
    for (const AcceleratorId id : server->second) {
      const Accelerator& place = cluster.accelerator(id);
      if (place.drained || place.leaving) starting.emplace(id, job.id);
    }
  }

  const Engine& engine;
  const Time now;
  std::multimap<AcceleratorId, JobId> holders;   // who run there now
  std::set<AcceleratorId> hung;                  // whose holder makes no steps
  std::multimap<AcceleratorId, JobId> kept;      // paused, still in its memory
  std::multimap<AcceleratorId, JobId> starting;  // processes without a lease
  std::map<std::string, uint64_t> parked_bytes;  // by server, in host memory
};

std::string WhyLost(const Accelerator& accelerator, const Engine& engine) {
  if (accelerator.state != AcceleratorState::kLost) return "";
  const JobId accuser = engine.AccuserOf(accelerator.id);
  const std::string who = accuser.valid()
                              ? StrCat("jobs could not use it, as `gavel logs ",
                                       accuser.value(), "` tells")
                              : "it failed";
  return StrCat(who, "; see to the device, then restart the agent of ",
                accelerator.server);
}

void AddHealth(const Accelerator& accelerator, const Engine& engine,
               AcceleratorRow* row) {
  const auto agent = engine.agents().find(accelerator.server);
  if (agent == engine.agents().end() || !agent->second.reachable) return;
  const auto found = agent->second.health.find(accelerator.info.uuid);
  if (found == agent->second.health.end()) return;
  const AcceleratorHealth& told = found->second;
  if (told.utilisation_percent >= 0) {
    row->utilisation_percent = told.utilisation_percent;
  }
  if (told.temperature_c >= 0) row->temperature_c = told.temperature_c;
  row->uncorrectable_errors = told.uncorrectable_errors;
  if (told.last_xid > 0) row->last_xid = told.last_xid;
}

AcceleratorRow RowOf(const Nodes& nodes, AcceleratorId id) {
  const Accelerator& accelerator = nodes.engine.cluster().accelerator(id);
  const auto jobs = [id](const std::multimap<AcceleratorId, JobId>& by_place) {
    std::vector<uint64_t> list;
    const auto [begin, end] = by_place.equal_range(id);
    for (auto it = begin; it != end; ++it) list.push_back(it->second.value());
    return list;
  };
  AcceleratorRow row;
  row.type = accelerator.info.type;
  row.uuid = accelerator.info.uuid;
  row.device = accelerator.info.device;
  row.slow_down_factor = accelerator.info.slow_down_factor;
  row.state = AcceleratorStateName(
      accelerator, nodes.engine, nodes.holders.contains(id),
      nodes.starting.contains(id), nodes.hung.contains(id));
  row.speed = nodes.engine.speeds().Of(id);
  row.jobs = jobs(nodes.holders);
  row.kept_jobs = jobs(nodes.kept);
  row.starting_jobs = jobs(nodes.starting);
  row.drained = accelerator.drained;
  const std::map<AcceleratorId, Time>& drains = nodes.engine.operated().drains;
  if (const auto until = drains.find(id); until != drains.end()) {
    row.drain_in_s = std::max(0.0, until->second - nodes.now);
  }
  row.memory_bytes = accelerator.info.memory_bytes;
  row.drained_for = accelerator.drained_for;
  row.lost_for = WhyLost(accelerator, nodes.engine);
  row.exclusive = accelerator.info.exclusive;
  row.visibility = accelerator.info.alone_visible ? "leased" : "all";
  AddHealth(accelerator, nodes.engine, &row);
  return row;
}

// As sinfo's, of all its accelerators.
std::string_view ServerState(const Nodes& nodes,
                             const std::vector<AcceleratorId>& accelerators) {
  size_t held = 0;
  size_t reachable = 0;
  size_t usable = 0;
  for (const AcceleratorId id : accelerators) {
    const Accelerator& accelerator = nodes.engine.cluster().accelerator(id);
    held += nodes.InUse(id) ? 1 : 0;
    reachable += accelerator.state == AcceleratorState::kUsable ? 1 : 0;
    usable += accelerator.may_start() ? 1 : 0;
  }
  if (reachable == 0) return "down";
  if (usable == 0) return held > 0 ? "draining" : "drained";
  if (held == 0) return "idle";
  return held < accelerators.size() ? "mixed" : "allocated";
}

NodeRow RowOf(const Nodes& nodes, const std::string& server,
              const std::vector<AcceleratorId>& accelerators, size_t from) {
  const size_t to =
      std::min(accelerators.size(), from + kAcceleratorsPerRowMax);
  NodeRow row;
  row.server = server;
  row.state = ServerState(nodes, accelerators);
  const auto parked = nodes.parked_bytes.find(server);
  if (parked != nodes.parked_bytes.end()) row.parked_bytes = parked->second;
  for (size_t i = from; i < to; ++i) {
    row.accelerators.push_back(RowOf(nodes, accelerators[i]));
  }
  return row;
}

}  // namespace

void AnswerNodes(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply) {
  const Nodes nodes(view.engine, view.now);
  JsonPage page;
  uint64_t index = 0;
  for (const auto& [server, accelerators] : view.engine.cluster().servers()) {
    // A server without accelerators has a row, too.
    for (size_t from = 0; from == 0 || from < accelerators.size();
         from += kAcceleratorsPerRowMax) {
      if (index++ < request.cursor) continue;
      const NodeRow row = RowOf(nodes, server, accelerators, from);
      if (page.Add(ToJson(row))) continue;
      reply->next_cursor = index - 1;
      reply->json = page.Take();
      return;
    }
  }
  reply->json = page.Take();
}

}  // namespace gavel
