#include "coordinator/engine/workers/accusations.h"

#include <string>
#include <string_view>
#include <vector>

namespace gavel::engine {

void Accusations::BelieveAccuser(JobId job, std::string_view type) {
  std::erase_if(accused_, [&](const auto& entry) {
    return entry.second == job &&
           cluster_.accelerator(entry.first).info.type == type;
  });
}

void Accusations::WithdrawAccusations(JobId job) {
  std::erase_if(accused_, [&](const auto& entry) {
    if (entry.second != job) return false;
    cluster_.MarkFound(
        entry.first,
        agents_.IsReachable(cluster_.accelerator(entry.first).server));
    assigned_.Recount();
    agenda_.SolveSoon();
    return true;
  });
}

void Accusations::ForgetLost(const std::string& server) {
  std::erase_if(accused_, [&](const auto& entry) {
    return cluster_.accelerator(entry.first).server == server;
  });
  cluster_.ForgetLost(server);
}

std::vector<AcceleratorId> Accusations::AccusedBy(JobId job) const {
  std::vector<AcceleratorId> accused;
  for (const auto& [accelerator, accuser] : accused_) {
    if (accuser == job) accused.push_back(accelerator);
  }
  return accused;
}

}  // namespace gavel::engine
