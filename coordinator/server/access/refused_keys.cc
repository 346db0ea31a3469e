#include "coordinator/server/access/refused_keys.h"

#include <utility>

namespace gavel {

bool RefusedKeys::Note(Clock::time_point now, const std::string& key,
                       const std::string& address, const std::string& was) {
  if (!keys_.contains(key) && keys_.size() >= kKeysMax) {
    keys_.erase(keys_.begin());
  }
  const auto [it, added] =
      keys_.try_emplace(key, Entry{{key, "", "", 0}, now, now, now + kMoment});
  Entry& entry = it->second;
  entry.last = now;
  entry.refused.address = address;
  entry.refused.was = was;
  ++entry.refused.attempts;
  return now - entry.first >= kMoment && now >= unknown_from_;
}

std::vector<RefusedKey> RefusedKeys::Take(
    Clock::time_point now,
    const std::function<bool(const std::string&)>& known) {
  std::vector<RefusedKey> due;
  for (auto it = keys_.begin(); it != keys_.end();) {
    Entry& entry = it->second;
    if (known(it->first) || now - entry.last >= kInterval) {
      it = keys_.erase(it);
      continue;
    }
    const bool early = entry.refused.was.empty() && now < unknown_from_;
    if (!early && now >= entry.tell_at && entry.refused.attempts > 0) {
      due.push_back(entry.refused);
      entry.refused.attempts = 0;
      entry.tell_at = now + kInterval;
    }
    ++it;
  }
  return due;
}

}  // namespace gavel
