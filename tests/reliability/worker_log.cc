#include "tests/reliability/worker_log.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/generation.h"
#include "core/text.h"

namespace gavel::testing {
namespace {

// One process with one lock, from its first to its last sign of life.
struct Stay {
  std::string lock;
  int64_t from_ns = 0;
  int64_t to_ns = 0;
  int64_t pid = 0;
};

class Checker {
 public:
  void Read(const std::string& job, const std::string& text) {
    job_ = job;
    latest_ = {};
    std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
    for (std::string line; std::getline(lines, line);) ReadLine(line);
    // A process that never gave its accelerator back was there at least until
    // its last line.
    while (!open_.empty()) Close(open_.begin()->first);
  }

  Findings Finish() {
    for (auto& [lock, stays] : stays_) FindOverlaps(lock, stays);
    return findings_;
  }

 private:
  void ReadLine(const std::string& line) {
    std::istringstream words(line);
    int64_t now_ns = 0;
    int64_t pid = 0;
    std::string word;
    words >> now_ns >> pid >> word;
    if (const auto open = open_.find(pid); open != open_.end()) {
      for (Stay& stay : open->second) stay.to_ns = now_ns;
    }
    if (word == "start") {
      Generation restored;
      uint64_t sum = 0;
      words >> restored.epoch >> restored.step >> sum;
      Started(restored, sum);
    } else if (word == "commit") {
      Generation committed;
      words >> committed.epoch >> committed.step;
      ++findings_.commits;
      findings_.highest_step = std::max(findings_.highest_step, committed.step);
      latest_ = std::max(latest_, committed);
    } else if (word == "take") {
      std::vector<Stay> stays;
      for (std::string lock; words >> lock;) {
        stays.push_back({lock, now_ns, now_ns, pid});
      }
      ++findings_.takes;
      if (stays.size() == 1) ++findings_.takes_beside;
      open_[pid] = std::move(stays);
    } else if (word == "give") {
      Close(pid);
    } else if (word == "shared") {
      ++findings_.shared;
      findings_.details.push_back(StrCat("job ", job_, ": ", line));
    }
  }

  void Close(int64_t pid) {
    const auto open = open_.extract(pid);
    if (!open) return;
    for (const Stay& stay : open.mapped()) stays_[stay.lock].push_back(stay);
  }

  void Started(const Generation& restored, uint64_t sum) {
    ++findings_.incarnations;
    if (restored < latest_) {
      findings_.lost_steps += std::max<uint64_t>(
          latest_.step - std::min(latest_.step, restored.step), 1);
      findings_.details.push_back(StrCat(
          "job ", job_, ": restored (", restored.epoch, ", ", restored.step,
          ") after (", latest_.epoch, ", ", latest_.step, ") was committed"));
    }
    if (sum != restored.step * (restored.step + 1) / 2) {
      ++findings_.lost_steps;
      findings_.details.push_back(
          StrCat("job ", job_, ": step ", restored.step, " has the sum ", sum));
    }
  }

  void FindOverlaps(const std::string& lock, std::vector<Stay>& stays) {
    std::ranges::sort(stays, {}, &Stay::from_ns);
    for (size_t i = 1; i < stays.size(); ++i) {
      if (stays[i].from_ns >= stays[i - 1].to_ns) continue;
      ++findings_.shared;
      findings_.details.push_back(StrCat(lock, ": process ", stays[i].pid,
                                         " took it while ", stays[i - 1].pid,
                                         " had it"));
    }
  }

  Findings findings_;
  std::string job_;
  Generation latest_;
  std::map<int64_t, std::vector<Stay>> open_;       // by pid
  std::map<std::string, std::vector<Stay>> stays_;  // by lock
};

}  // namespace

Findings CheckWorkerLogs(const std::map<std::string, std::string>& logs) {
  Checker checker;
  for (const auto& [job, text] : logs) checker.Read(job, text);
  return checker.Finish();
}

}  // namespace gavel::testing
