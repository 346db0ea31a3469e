#include "coordinator/cli/doctor/doctor_account.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/text.h"

namespace gavel {
namespace {

// Without the end of an epoch in sight.
constexpr uint64_t kMoreSteps = 4;

// What is before the first blank, which both lose.
std::string_view TakeWord(std::string_view* line) {
  const size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

void TakeLine(std::string_view line, DoctorAccount* account) {
  const std::string_view word = TakeWord(&line);
  uint64_t step = 0;
  if (!absl::SimpleAtoi(ToAbsl(TakeWord(&line)), &step)) return;
  if (word == "tracked") {
    const std::string_view name = TakeWord(&line);
    account->tracked.push_back(StrCat(name, " (", line, ")"));
  } else if (word == "loop-begin") {
    ++account->loops_begun;
  } else if (word == "loop-end") {
    account->epoch_ends.push_back(step);
  } else if (word == "loop-break") {
    account->breaks.push_back(step);
  } else if (word == "evaluation") {
    account->evaluations.push_back(step);
  } else if (word == "untracked") {
    const std::string_view kind = TakeWord(&line);
    account->untracked.push_back({step, std::string(kind), std::string(line)});
  }
}

}  // namespace

std::vector<uint64_t> DoctorAccount::LoopEnds() const {
  std::vector<uint64_t> ends = epoch_ends;
  ends.insert(ends.end(), breaks.begin(), breaks.end());
  std::ranges::sort(ends);
  return ends;
}

bool DoctorAccount::CountsSomething() const {
  return std::ranges::any_of(tracked, [](const std::string& one) {
    return absl::StrContains(one, " number of ") ||
           absl::EndsWith(one, "(text)") || absl::EndsWith(one, "(bytes)");
  });
}

const UntrackedItem* DoctorAccount::Lost() const {
  const auto found =
      std::ranges::find_if(untracked, [](const UntrackedItem& one) {
        return one.kind == "module" || one.kind == "average";
      });
  return found == untracked.end() ? nullptr : &*found;
}

DoctorAccount ParseAccount(std::string_view text) {
  DoctorAccount account;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    TakeLine(text.substr(0, end), &account);
    text.remove_prefix(end + 1);
  }
  return account;
}

uint64_t StepsForEpochs(const DoctorAccount& account, uint64_t steps) {
  if (account.loops_begun == 0) return 0;
  const std::vector<uint64_t> ends = account.LoopEnds();
  if (ends.empty()) return kMoreSteps * steps;
  const uint64_t epoch = std::max<uint64_t>(ends.front(), 1);
  const uint64_t wanted = 2 * epoch + std::max<uint64_t>(epoch / 4, 2);
  return wanted > steps ? wanted : 0;
}

}  // namespace gavel
