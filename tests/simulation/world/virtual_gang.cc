#include "tests/simulation/world/virtual_gang.h"

#include <algorithm>
#include <vector>

#include "tests/simulation/world/virtual_process.h"

namespace gavel {
namespace {

// Between two words of a rank. On real machines always the shorter one; where
// nobody wants anything, words only tell that a rank lives.
constexpr double kBriskInterval_s = 0.02;
constexpr double kIdleInterval_s = 1;
constexpr double kBrisk_s = 2;
// A step that can't end is looked at again after this.
constexpr double kStepAgain_s = 0.25;

}  // namespace

// ---- before it runs

bool VirtualGangs::Join(GangKey key, VirtualProcess& process, int world_size) {
  Gang& gang = gangs_[key];
  Rank& rank = gang.ranks[process.key().rank];
  rank.process = &process;
  rank.server = process.server();
  return gang.ranks.size() == static_cast<size_t>(world_size);
}

VirtualGangs::Gang* VirtualGangs::Find(GangKey key) {
  const auto found = gangs_.find(key);
  return found == gangs_.end() ? nullptr : &found->second;
}

std::map<int, VirtualProcess*> VirtualGangs::RanksOf(GangKey key) const {
  std::map<int, VirtualProcess*> ranks;
  const auto found = gangs_.find(key);
  if (found == gangs_.end()) return ranks;
  for (const auto& [rank, state] : found->second.ranks) {
    if (state.process != nullptr) ranks[rank] = state.process;
  }
  return ranks;
}

// ---- steps

void VirtualGangs::Begin(GangKey key, uint64_t steps_done) {
  Gang& gang = gangs_.at(key);
  gang.steps_done = steps_done;
  for (auto& [number, rank] : gang.ranks) {
    rank.member.emplace(steps_done, rank.process->Now());
  }
  Rank& host = gang.ranks.at(0);
  gang.leader.emplace(static_cast<int>(gang.ranks.size()), host.process->Now());
  for (const auto& [number, rank] : gang.ranks) ArmTalk(key, gang, number);
}

void VirtualGangs::BeginStep(GangKey key, int rank) {
  Gang* gang = Find(key);
  if (gang == nullptr) return;
  const VirtualProcess& process = *gang->ranks.at(rank).process;
  gang->in_step.insert(rank);
  const double step_s = 1 / process.StepsPerSecond();
  // The first in it waits for the others no longer than a collective does.
  const Time give_up =
      queue_.now() + step_s + process.training().gang_silence_s;
  if (gang->in_step.size() > 1) return;
  queue_.After(step_s, [this, key, steps_done = gang->steps_done, give_up] {
    EndStep(key, steps_done, give_up);
  });
}

void VirtualGangs::EndStep(GangKey key, uint64_t steps_done, Time give_up) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->steps_done != steps_done ||
      gang->in_step.empty()) {
    return;
  }
  const bool whole = std::ranges::all_of(gang->ranks, [&](const auto& entry) {
    return gang->in_step.contains(entry.first) &&
           entry.second.process != nullptr && entry.second.process->IsHeard();
  });
  if (!whole && queue_.now() >= give_up) return Break(key);
  if (!whole) {
    return queue_.After(kStepAgain_s, [this, key, steps_done, give_up] {
      EndStep(key, steps_done, give_up);
    });
  }
  ++gang->steps_done;
  gang->in_step.clear();
  for (const auto& [rank, process] : RanksOf(key)) {
    process->GangStepDone(key.second);
  }
}

void VirtualGangs::Break(GangKey key) {
  for (const auto& [rank, process] : RanksOf(key)) {
    process->GangIsBroken(key.second);
  }
}

// ---- the agreement

StopMember::Passage VirtualGangs::Pass(GangKey key, int rank,
                                       uint64_t steps_done) {
  Gang* gang = Find(key);
  if (gang == nullptr) return StopMember::Passage::kMissed;
  Rank& own = gang->ranks.at(rank);
  const StopMember::Passage passage = own.member->Pass(steps_done);
  own.waits = passage == StopMember::Passage::kWait;
  if (own.waits) Quicken(key, *gang);
  return passage;
}

void VirtualGangs::Want(GangKey key, int rank, StopKind kind) {
  Gang* gang = Find(key);
  if (gang == nullptr) return;
  gang->ranks.at(rank).member->Want(kind);
  Quicken(key, *gang);
}

void VirtualGangs::Quicken(GangKey key, Gang& gang) {
  const bool idle = gang.brisk_until < queue_.now();
  gang.brisk_until = queue_.now() + kBrisk_s;
  if (!idle) return;
  for (const auto& [number, rank] : gang.ranks) ArmTalk(key, gang, number);
}

// By a thread of its process.
void VirtualGangs::ArmTalk(GangKey key, Gang& gang, int rank) {
  Rank& own = gang.ranks.at(rank);
  if (own.process == nullptr) return;
  const double interval_s =
      gang.brisk_until >= queue_.now() ? kBriskInterval_s : kIdleInterval_s;
  const auto talk = [this, key, rank, number = ++own.talk] {
    const Gang* found = Find(key);
    if (found == nullptr) return;
    const Rank& talker = found->ranks.at(rank);
    if (talker.process != nullptr && talker.talk == number) Talk(key, rank);
  };
  own.process->After(interval_s * (0.5 + Draw()), talk);
}

bool VirtualGangs::Reach(const Rank& a, const Rank& b) const {
  return a.server == b.server ||
         (network_.IsConnected(a.server) && network_.IsConnected(b.server));
}

void VirtualGangs::Talk(GangKey key, int rank) {
  Gang& gang = *Find(key);
  Rank& own = gang.ranks.at(rank);
  if (rank == 0) {
    own.word = own.member->Word();
    std::vector<std::optional<MemberWord>> words;
    for (const auto& [number, other] : gang.ranks) words.push_back(other.word);
    gang.leader_word = gang.leader->Hear(own.process->Now(), words);
    return Hear(key, rank, gang.leader_word);
  }
  if (!Reach(own, gang.ranks.at(0))) return Hear(key, rank, LeaderWord());
  queue_.After(
      network_.ConnectionDelay(), [this, key, rank, word = own.member->Word()] {
        Gang* there = Find(key);
        if (there == nullptr) return;
        Rank& sender = there->ranks.at(rank);
        if (sender.process == nullptr) return;
        sender.word = word;
        sender.process->After(network_.ConnectionDelay(),
                              [this, key, rank, answer = there->leader_word] {
                                Hear(key, rank, answer);
                              });
      });
}

void VirtualGangs::Hear(GangKey key, int rank, const LeaderWord& word) {
  Gang* gang = Find(key);
  if (gang == nullptr) return;
  Rank& own = gang->ranks.at(rank);
  if (own.process == nullptr) return;
  ArmTalk(key, *gang, rank);
  const Time now = own.process->Now();
  own.member->Hear(now, word);
  VirtualProcess& process = *own.process;
  if (own.member->lost_rank(now) >= 0) {
    return process.GangIsBroken(key.second);
  }
  if (own.waits) process.AttendGang();
}

void VirtualGangs::Leave(GangKey key, int rank, Leaving how) {
  Gang* gang = Find(key);
  if (gang == nullptr) return;
  const auto own = gang->ranks.find(rank);
  if (own == gang->ranks.end() || own->second.process == nullptr) return;
  const bool runs = own->second.member.has_value();
  if (!runs) {
    gang->ranks.erase(own);
  } else {
    own->second.member->Leave(how);
    if (Reach(own->second, gang->ranks.at(0))) {
      own->second.word = own->second.member->Word();
    }
    own->second.process = nullptr;
  }
  const bool any = std::ranges::any_of(gang->ranks, [](const auto& entry) {
    return entry.second.process != nullptr;
  });
  if (!any) gangs_.erase(key);
}

}  // namespace gavel
