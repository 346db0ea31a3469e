#include "tests/simulation/world/virtual_checkpoints.h"

#include <algorithm>

namespace gavel {

Generation VirtualCheckpoints::Latest() const {
  const auto latest = std::max_element(readable_.begin(), readable_.end());
  return latest == readable_.end() ? Generation{} : *latest;
}

void VirtualCheckpoints::Commit(Generation generation) {
  std::vector<Generation> existing = readable_;
  existing.insert(existing.end(), damaged_.begin(), damaged_.end());
  readable_.push_back(generation);
  std::erase(damaged_, generation);
  for (const Generation old :
       GenerationsToDelete(existing, generation, kKeepLast)) {
    std::erase(readable_, old);
    std::erase(damaged_, old);
  }
}

void VirtualCheckpoints::DamageLatest() {
  const Generation latest = Latest();
  std::vector<Generation> others = readable_;
  std::erase(others, latest);
  if (others.empty()) return;
  readable_ = std::move(others);
  damaged_.push_back(latest);
}

}  // namespace gavel
