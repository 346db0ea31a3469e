#include "runtime/lease/stop_agreement.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <initializer_list>

#include "core/text.h"

namespace gavel {
namespace {

// No gang takes a million steps while a word travels to all ranks and back.
constexpr uint64_t kMarginMax = 1 << 20;
constexpr uint64_t kRanksMax = 1 << 30;

// Returns the numbers in `text`, or nullopt unless there are exactly `count`.
std::optional<std::vector<uint64_t>> Numbers(std::string_view text,
                                             size_t count) {
  std::vector<uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && numbers.size() < count) {
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    numbers.push_back(number);
    at = rest;
    if (at != end && *at++ != ' ') return std::nullopt;
  }
  if (at != end || numbers.size() != count) return std::nullopt;
  return numbers;
}

}  // namespace

std::string EncodeWord(const LeaderWord& word) {
  const StopProposal& p = word.proposal;
  return StrCat(word.beat, " ", p.number, " ", p.step, " ",
                static_cast<int>(p.kind), " ", p.bound ? 1 : 0, " ",
                word.lost_rank + 1, " ", word.failed_save.step, " ",
                word.failed_save.attempt, " ", word.failed_rank + 1, " ",
                word.begun_save.step, " ", word.begun_save.attempt, " ",
                word.any_ended ? 1 : 0);
}

std::string EncodeWord(const MemberWord& word) {
  return StrCat(word.beat, " ", word.step_begun, " ",
                static_cast<int>(word.wanted), " ", word.answered, " ",
                word.accepted ? 1 : 0, " ", word.knows_bound ? 1 : 0, " ",
                static_cast<int>(word.leaving), " ", word.failed_save.step, " ",
                word.failed_save.attempt, " ", word.begun_save.step, " ",
                word.begun_save.attempt, " ", word.ended ? 1 : 0, " ",
                word.rests ? 1 : 0);
}

std::optional<LeaderWord> DecodeLeaderWord(std::string_view text) {
  const auto n = Numbers(text, 12);
  if (!n || (*n)[3] > 2 || (*n)[4] > 1 || (*n)[5] > kRanksMax ||
      (*n)[8] > kRanksMax || (*n)[11] > 1) {
    return std::nullopt;
  }
  return LeaderWord{
      (*n)[0],
      {(*n)[1], (*n)[2], static_cast<StopKind>((*n)[3]), (*n)[4] == 1},
      static_cast<int>((*n)[5]) - 1,
      {(*n)[6], (*n)[7]},
      static_cast<int>((*n)[8]) - 1,
      {(*n)[9], (*n)[10]},
      (*n)[11] == 1};
}

std::optional<MemberWord> DecodeMemberWord(std::string_view text) {
  const auto n = Numbers(text, 13);
  if (!n || (*n)[2] > 2 || (*n)[4] > 1 || (*n)[5] > 1 || (*n)[6] > 2 ||
      (*n)[11] > 1 || (*n)[12] > 1) {
    return std::nullopt;
  }
  return MemberWord{(*n)[0],
                    (*n)[1],
                    static_cast<StopKind>((*n)[2]),
                    (*n)[3],
                    (*n)[4] == 1,
                    (*n)[5] == 1,
                    static_cast<Leaving>((*n)[6]),
                    {(*n)[7], (*n)[8]},
                    {(*n)[9], (*n)[10]},
                    (*n)[11] == 1,
                    (*n)[12] == 1};
}

// ---- every rank

StopMember::Passage StopMember::Pass(uint64_t steps_done, bool begins) {
  if (!begins) {
    rests_ = true;
    step_begun_ = steps_done;
  }
  if (!bound_.empty() && steps_done >= bound_.front().step) {
    if (steps_done > bound_.front().step) return Passage::kMissed;
    const StopKind kind = bound_.front().kind;
    bound_.pop_front();
    return kind == StopKind::kStop ? Passage::kStop : Passage::kCheckpoint;
  }
  if (accepted_ && !open_.bound && steps_done >= open_.step) {
    return Passage::kWait;
  }
  if (begins) {
    rests_ = false;
    step_begun_ = std::max(step_begun_, steps_done + 1);
  }
  return Passage::kGoOn;
}

void StopMember::Want(StopKind kind) {
  // A stop of this strength that binds already serves the request.
  if (!bound_.empty() && bound_.back().kind >= kind) return;
  wanted_ = std::max(wanted_, kind);
}

void StopMember::Hear(Time now, const LeaderWord& word) {
  if (word.beat <= leader_beat_) return;
  leader_beat_ = word.beat;
  leader_heard_at_ = now;
  if (word.lost_rank >= 0) lost_rank_ = word.lost_rank;
  heard_begun_save_ = word.begun_save;
  if (word.any_ended) ended_heard_at_ = std::min(ended_heard_at_, now);
  heard_failed_save_ = word.failed_save;
  heard_failed_rank_ = word.failed_rank;
  const StopProposal& proposal = word.proposal;
  if (proposal.number > open_.number) {
    open_ = proposal;
    open_.bound = false;
    // This rank is in the middle of step S or before it, so that it has not
    // reached boundary S yet.
    accepted_ = step_begun_ <= proposal.step;
  }
  if (proposal.number == open_.number && proposal.bound && !open_.bound &&
      accepted_) {
    open_.bound = true;
    // A stop at a boundary where all ranks rest may be earlier than stops that
    // bind already. It replaces these.
    while (!bound_.empty() && bound_.back().step > proposal.step) {
      bound_.pop_back();
    }
    bound_.push_back(proposal);
    if (wanted_ <= proposal.kind) wanted_ = StopKind::kNone;
  }
}

MemberWord StopMember::Word() {
  MemberWord word;
  word.beat = ++beat_;
  word.step_begun = step_begun_;
  word.wanted = wanted_;
  word.answered = open_.number;
  word.accepted = accepted_;
  word.knows_bound = open_.bound;
  word.leaving = leaving_;
  word.failed_save = failed_save_;
  word.begun_save = begun_save_;
  word.ended = ended_;
  word.rests = rests_;
  return word;
}

int StopMember::lost_rank(Time now) const {
  if (lost_rank_ >= 0) return lost_rank_;
  return now > leader_heard_at_ + kRankSilenceMax_s ? 0 : -1;
}

// ---- rank 0

StopLeader::StopLeader(int world_size, Time now)
    : ranks_(static_cast<size_t>(world_size), Rank{MemberWord(), now}) {}

LeaderWord StopLeader::Hear(Time now,
                            std::span<const std::optional<MemberWord>> words) {
  assert(words.size() == ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!words[i] || words[i]->beat <= ranks_[i].word.beat) continue;
    ranks_[i] = {*words[i], now};
  }
  FindLost(now);
  FindSaves();
  if (word_.lost_rank < 0) Decide();
  ++word_.beat;
  return word_;
}

void StopLeader::FindLost(Time now) {
  bool all_left = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.word.leaving == Leaving::kDone) continue;
    all_left = false;
    const bool silent = now > rank.heard_at + kRankSilenceMax_s;
    if (!silent && rank.word.leaving == Leaving::kNo) continue;
    if (word_.lost_rank < 0) word_.lost_rank = static_cast<int>(i);
  }
  all_left_ = all_left || word_.lost_rank >= 0;
}

void StopLeader::FindSaves() {
  std::optional<Save> begun;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const MemberWord& rank = ranks_[i].word;
    word_.any_ended = word_.any_ended || rank.ended;
    // A rank that has left begins no more saves, so the others need not wait
    // for it.
    if (rank.leaving == Leaving::kNo) {
      begun = std::min(begun.value_or(rank.begun_save), rank.begun_save);
    }
    if (rank.failed_save <= word_.failed_save) continue;
    word_.failed_save = rank.failed_save;
    word_.failed_rank = static_cast<int>(i);
  }
  if (begun) word_.begun_save = *begun;
}

std::optional<uint64_t> StopLeader::RestingAfter() const {
  const uint64_t step = ranks_[0].word.step_begun;
  for (const Rank& rank : ranks_) {
    if (!rank.word.rests || rank.word.step_begun != step) return std::nullopt;
  }
  return step;
}

void StopLeader::Decide() {
  const StopProposal& last = word_.proposal;
  const std::optional<uint64_t> resting_after = RestingAfter();
  const bool comes_too_late =
      resting_after && last.number > 0 && last.step > *resting_after;
  bool all_accepted = true;
  bool all_know = true;
  bool refused = false;
  StopKind wanted = StopKind::kNone;
  for (const Rank& rank : ranks_) {
    const bool answered = rank.word.answered == last.number;
    all_accepted = all_accepted && answered && rank.word.accepted;
    all_know = all_know && answered && rank.word.knows_bound;
    refused = refused || (answered && !rank.word.accepted);
    wanted = std::max(wanted, rank.word.wanted);
  }
  const bool open = last.number > 0 && !last.bound;
  if (!open) {
    // Propose the next stop only once all ranks know that this one binds, so
    // that no rank can miss it.
    if (comes_too_late) wanted = std::max(wanted, last.kind);
    if (wanted != StopKind::kNone && (last.number == 0 || all_know)) {
      Propose(wanted);
    }
  } else if (comes_too_late && !refused) {
    Propose(std::max(wanted, last.kind));
  } else if (refused) {
    margin_ = std::min(margin_ * 2, kMarginMax);
    Propose(std::max(wanted, last.kind));
  } else if (all_accepted) {
    word_.proposal.bound = true;
  }
}

void StopLeader::Propose(StopKind kind) {
  uint64_t highest = 0;
  for (const Rank& rank : ranks_) {
    highest = std::max(highest, rank.word.step_begun);
  }
  // A new stop must come after a stop that binds, because some ranks may be at
  // that one now. If all ranks rest, the stop is at the boundary where they
  // rest, which no rank has passed.
  StopProposal& proposal = word_.proposal;
  const uint64_t first = proposal.bound ? proposal.step + 1 : proposal.step;
  const uint64_t step =
      RestingAfter().value_or(std::max(highest + margin_ - 1, first));
  proposal = {proposal.number + 1, step, kind, /*bound=*/false};
}

}  // namespace gavel
