// Accelerators that fail (fault "accelerator lost"): one that a worker can't
// use, for the device is not there or does not work, is given to nobody until
// a new agent of its server starts; its job goes on elsewhere.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "core/text.h"

namespace gavel {
namespace {

// A program that can't use those of so many servers is itself what is wrong, or
// so many accelerators where no other server has such.
constexpr size_t kAccusedMax = 2;

}  // namespace

// The lease was given back for its device's sake. Nothing is wrong with one
// that another job runs on at this moment.
void Engine::AdmitFailedDevice(Time now, JobId job, AcceleratorId where) {
  if (!holders_.At(where).empty()) return;
  const Accelerator& accelerator = cluster_.accelerator(where);
  if (accelerator.state == AcceleratorState::kLost) return;
  // Not all that was measured is in the journal: whether it is believed is.
  const std::string& type = accelerator.info.type;
  const bool believed =
      throughputs_.Get(job, type).source == ThroughputSource::kMeasured &&
      !throughputs_.IsExcluded(job, type);
  Record(now, event::AcceleratorLost{accelerator.server, accelerator.info.uuid,
                                     believed ? JobId() : job});
}

// A job that was measured on such a type is believed. Of one that was not, the
// program may be at fault, built without CUDA, say: its word holds until it
// ends, or can't use those of another server either.
void Engine::On(Time now, const event::AcceleratorLost& e) {
  const AcceleratorId lost = cluster_.Find(e.server, e.uuid);
  if (!lost.valid()) return;
  cluster_.MarkLost(lost);
  CountAssigned();
  unsolved_ = true;
  fill_due_ = true;
  while (!assigned_to_.At(lost).empty()) {
    Assign(now, jobs_.at(assigned_to_.At(lost).front()), {}, JobId());
  }
  Job* accuser = Find(e.job);
  if (accuser == nullptr || !accuser->active()) return;
  accused_[lost] = e.job;
  std::vector<std::string> accused;
  std::set<std::string> servers;
  for (const auto& [accelerator, job] : accused_) {
    if (job != e.job) continue;
    accused.push_back(cluster_.accelerator(accelerator).info.uuid);
    servers.insert(cluster_.accelerator(accelerator).server);
  }
  const bool others =
      std::ranges::any_of(cluster_.accelerators(), [&](const auto& other) {
        return other.usable() &&
               other.info.type == cluster_.accelerator(lost).info.type &&
               !servers.contains(other.server);
      });
  if ((others ? servers.size() : accused.size()) < kAccusedMax) return;
  EndJob(now, *accuser, JobState::kHeld,
         Reason{ReasonCode::kHeldDevice, absl::StrJoin(accused, " nor "),
                static_cast<double>(e.job.value()), 0});
}

// It makes steps on such a type: its program was not what failed.
void Engine::BelieveAccuser(JobId job, std::string_view type) {
  std::erase_if(accused_, [&](const auto& entry) {
    return entry.second == job &&
           cluster_.accelerator(entry.first).info.type == type;
  });
}

void Engine::WithdrawAccusations(JobId job) {
  std::erase_if(accused_, [&](const auto& entry) {
    if (entry.second != job) return false;
    const auto agent = agents_.find(cluster_.accelerator(entry.first).server);
    cluster_.MarkFound(entry.first,
                       agent != agents_.end() && agent->second.reachable);
    CountAssigned();
    unsolved_ = true;
    return true;
  });
}

// By a new agent, which says anew what is there.
void Engine::ForgetLost(const std::string& server) {
  std::erase_if(accused_, [&](const auto& entry) {
    return cluster_.accelerator(entry.first).server == server;
  });
  cluster_.ForgetLost(server);
}

}  // namespace gavel
