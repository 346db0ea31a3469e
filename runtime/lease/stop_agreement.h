// How the ranks of a gang come to stop at the same step, however late one is:
// decisions only. iterator/gang.h carries the
// two kinds of words between the processes, at its own pace and beside the
// training; words may be late, lost or seen twice, as each replaces the one
// before it.
//
//   a rank wants a stop  ->  rank 0 proposes: at step S, beyond the last begun
//   each rank answers    ->  yes: from here on it will wait at boundary S
//                            no: it is beyond S already; rank 0 proposes a
//                            later step, twice as far ahead
//   all said yes         ->  the stop binds; nobody is beyond S, nobody can be
//   all rest after one   ->  they stop there, also when a later step binds
//   step, in evaluation      already, which would be reached too late
//
// The same words tell who is alive, which save all have begun, who could not
// write its part of one, and that a rank has come to its loop's end. Not
// thread-safe.
#ifndef GAVEL_RUNTIME_LEASE_STOP_AGREEMENT_H_
#define GAVEL_RUNTIME_LEASE_STOP_AGREEMENT_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace gavel {

// In the order of strength.
enum class StopKind : uint8_t { kNone = 0, kCheckpoint = 1, kStop = 2 };

enum class Leaving : uint8_t {
  kNo = 0,
  kDone = 1,    // at a step that all agreed on, or the loop's end
  kBroken = 2,  // at a step of its own: the gang can't go on
};

// A proposal of rank 0. `number` rises with each.
struct StopProposal {
  uint64_t number = 0;  // 0: none yet
  uint64_t step = 0;    // the boundary after this step
  StopKind kind = StopKind::kNone;
  bool bound = false;
};

// One attempt to write the generation of a step.
struct Save {
  uint64_t step = 0;
  uint64_t attempt = 0;  // from 1; 0: none
  friend auto operator<=>(const Save&, const Save&) = default;
};

// What rank 0 says to all.
struct LeaderWord {
  uint64_t beat = 0;  // rises with every word
  StopProposal proposal;
  int lost_rank = -1;  // one that is gone or silent: the gang is broken
  // The last save that a rank could not write its part of, and the first that
  // could not.
  Save failed_save = {};
  int failed_rank = -1;
  Save begun_save = {};  // the last that all ranks have begun
  bool any_ended = false;
};

// What each rank, 0 too, says of itself.
struct MemberWord {
  uint64_t beat = 0;
  uint64_t step_begun = 0;  // the highest; 1 is the first
  StopKind wanted = StopKind::kNone;
  uint64_t answered = 0;  // number of the last proposal heard
  bool accepted = false;
  bool knows_bound = false;  // that it binds
  Leaving leaving = Leaving::kNo;
  Save failed_save = {};  // the last that it could not write its part of
  Save begun_save = {};   // the last that it has begun
  bool ended = false;     // its loop has: it takes part in no further step
  bool rests = false;     // after `step_begun`, which it has done
};

// As the store keeps them. Nothing: not such a word.
std::string EncodeWord(const LeaderWord& word);
std::string EncodeWord(const MemberWord& word);
std::optional<LeaderWord> DecodeLeaderWord(std::string_view text);
std::optional<MemberWord> DecodeMemberWord(std::string_view text);

// A rank from which nothing new was heard for this long is lost.
inline constexpr double kRankSilenceMax_s = 5;
// A rank that still waits for others in a step, so long after the loop of one
// has ended, waits for ever: they have not taken equally many steps.
inline constexpr double kEndedRankWait_s = 30;

// The part of every rank.
class StopMember {
 public:
  // `steps_done` before the gang's first step; `now` as for Hear.
  StopMember(uint64_t steps_done, Time now)
      : step_begun_(steps_done), leader_heard_at_(now) {}

  // kGoOn: the next step may begin (and counts as begun). kWait: at a boundary
  // that may become the stop; ask again when more was heard. kCheckpoint and
  // kStop: all ranks are at this boundary; said once. kMissed: the caller went
  // past it without asking, so the gang is broken.
  enum class Passage : uint8_t { kGoOn, kWait, kCheckpoint, kStop, kMissed };
  // The training thread is at the boundary after `steps_done` steps, and
  // another step `begins` when it goes on; else it rests there, and will be
  // back before the next step.
  Passage Pass(uint64_t steps_done, bool begins = true);

  // Asks for a stop until one of this strength binds.
  void Want(StopKind kind);
  void Leave(Leaving how) { leaving_ = how; }
  void BeginSave(const Save& save) { begun_save_ = save; }
  void FailSave(const Save& save) { failed_save_ = save; }
  // The loop has come to its end.
  void End() { ended_ = true; }
  void Hear(Time now, const LeaderWord& word);
  MemberWord Word();

  // The rank that broke the gang; -1: none. Rank 0 when it is silent.
  int lost_rank(Time now) const;
  // The rank that could not write its part of `save`; -1: none is known of.
  int failed_rank(const Save& save) const {
    return heard_failed_save_ == save ? heard_failed_rank_ : -1;
  }
  // Every rank has begun `save`, or a later one.
  bool all_have_begun(const Save& save) const {
    return heard_begun_save_ >= save;
  }
  // The loop of another rank has ended, and this one's has not in time.
  bool is_left_behind(Time now) const {
    return !ended_ && now > ended_heard_at_ + kEndedRankWait_s;
  }

 private:
  uint64_t step_begun_;
  bool rests_ = false;
  StopKind wanted_ = StopKind::kNone;
  Leaving leaving_ = Leaving::kNo;
  StopProposal open_;  // the last heard
  bool accepted_ = false;
  // Until the training thread is there, by step: at most a checkpoint and the
  // stop behind it.
  std::deque<StopProposal> bound_;
  uint64_t beat_ = 0;
  uint64_t leader_beat_ = 0;
  Time leader_heard_at_;
  int lost_rank_ = -1;
  Save begun_save_;
  Save failed_save_;
  bool ended_ = false;
  Save heard_begun_save_;
  Time ended_heard_at_ = kNever;
  Save heard_failed_save_;
  int heard_failed_rank_ = -1;
};

// The part of rank 0 beside its StopMember.
class StopLeader {
 public:
  StopLeader(int world_size, Time now);

  // The last word of each rank, by rank; nothing where none could be read.
  LeaderWord Hear(Time now, std::span<const std::optional<MemberWord>> words);
  // Every rank has left, or one was lost: nobody listens any more.
  bool all_left() const { return all_left_; }

 private:
  struct Rank {
    MemberWord word;
    Time heard_at = 0;
  };
  void FindLost(Time now);
  void FindSaves();
  // The step after which all ranks rest.
  std::optional<uint64_t> RestingAfter() const;
  void Decide();
  void Propose(StopKind kind);

  std::vector<Rank> ranks_;
  LeaderWord word_;
  // Steps ahead of the highest that was begun. Doubled when it was not enough,
  // and kept: it measures how many steps an agreement takes.
  uint64_t margin_ = 1;
  bool all_left_ = false;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_LEASE_STOP_AGREEMENT_H_
