// How the ranks of a gang agree to stop at the same step, however late one of
// them is: decisions only. GangThread (iterator/gang.h) carries two kinds of
// messages, called words, between the processes, beside the training and at its
// own pace. Each word replaces the one before it, so words may be late, lost or
// read twice.
//
//   a rank wants a stop  ->  rank 0 proposes: at step S, beyond the last begun
//   each rank answers    ->  yes: from here on it will wait at boundary S
//                            no: it is beyond S already; rank 0 proposes a
//                            later step, twice as far ahead
//   all said yes         ->  the stop binds; no rank is or can get beyond S
//   all rest after the   ->  they stop there, even if a later step binds
//   same step, in            already, as they would reach that one too late
//   evaluation
//
// The same words tell which ranks are alive, which save all ranks have begun,
// which rank could not write its part of a save, and that a rank's loop has
// ended. Not thread-safe.
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

// In ascending order of strength.
enum class StopKind : uint8_t { kNone = 0, kCheckpoint = 1, kStop = 2 };

enum class Leaving : uint8_t {
  kNo = 0,
  kDone = 1,    // at a step that all agreed on, or the loop's end
  kBroken = 2,  // at a step of its own: the gang can't continue
};

// A proposal of rank 0. Each has a higher `number` than the one before.
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

// The word of rank 0 to all ranks.
struct LeaderWord {
  uint64_t beat = 0;  // rises with every word
  StopProposal proposal;
  int lost_rank = -1;  // a rank that is gone or silent: the gang is broken
  // The latest save of which a rank could not write its part, and the first
  // rank that reported it.
  Save failed_save = {};
  int failed_rank = -1;
  Save begun_save = {};  // the last that all remaining ranks have begun
  bool any_ended = false;
};

// The word of each rank about itself, including rank 0.
struct MemberWord {
  uint64_t beat = 0;
  uint64_t step_begun = 0;  // the latest step begun; 1 is the first
  StopKind wanted = StopKind::kNone;
  uint64_t answered = 0;  // number of the last proposal heard
  bool accepted = false;
  bool knows_bound = false;  // knows that the proposal binds
  Leaving leaving = Leaving::kNo;
  Save failed_save = {};  // the last of which it could not write its part
  Save begun_save = {};   // the last that it has begun
  bool ended = false;     // its loop ended; it takes part in no further step
  bool rests = false;     // rests after `step_begun`, which is done
};

// The text form in the gang's store. Decoding returns nullopt if the text is
// not such a word.
std::string EncodeWord(const LeaderWord& word);
std::string EncodeWord(const MemberWord& word);
std::optional<LeaderWord> DecodeLeaderWord(std::string_view text);
std::optional<MemberWord> DecodeMemberWord(std::string_view text);

// A rank from which no new word came for this long is lost.
inline constexpr double kRankSilenceMax_s = 5;
// How long a rank may wait for others in a step after the loop of one has
// ended. Longer means that it would wait for ever, because the ranks have not
// taken equally many steps.
inline constexpr double kEndedRankWait_s = 30;

// The part of the agreement that every rank runs.
class StopMember {
 public:
  // `steps_done`: steps done before the gang's first one. `now`: as for Hear.
  StopMember(uint64_t steps_done, Time now)
      : step_begun_(steps_done), leader_heard_at_(now) {}

  // kGoOn: the next step may begin, and counts as begun. kWait: this boundary
  // may become the stop; call again after the next Hear. kCheckpoint and kStop:
  // all ranks stop at this boundary; returned once. kMissed: the caller went
  // past the stop without asking, so the gang is broken.
  enum class Passage : uint8_t { kGoOn, kWait, kCheckpoint, kStop, kMissed };
  // Called when the training thread is at the boundary after `steps_done`
  // steps. `begins`: another step begins if the answer is kGoOn. Otherwise the
  // rank rests at this boundary and calls again before its next step.
  Passage Pass(uint64_t steps_done, bool begins = true);

  // Asks for a stop until one of at least this strength binds.
  void Want(StopKind kind);
  void Leave(Leaving how) { leaving_ = how; }
  void BeginSave(const Save& save) { begun_save_ = save; }
  void FailSave(const Save& save) { failed_save_ = save; }
  // The loop of this rank has ended.
  void End() { ended_ = true; }
  void Hear(Time now, const LeaderWord& word);
  MemberWord Word();

  // The rank that broke the gang, which is rank 0 if it is silent; -1: none.
  int lost_rank(Time now) const;
  // The rank that could not write its part of `save`; -1: no such rank is
  // known.
  int failed_rank(const Save& save) const {
    return heard_failed_save_ == save ? heard_failed_rank_ : -1;
  }
  // Whether every rank has begun `save` or a later one.
  bool all_have_begun(const Save& save) const {
    return heard_begun_save_ >= save;
  }
  // Whether the loop of another rank ended more than kEndedRankWait_s ago and
  // this rank's has not ended.
  bool is_left_behind(Time now) const {
    return !ended_ && now > ended_heard_at_ + kEndedRankWait_s;
  }

 private:
  uint64_t step_begun_;
  bool rests_ = false;
  StopKind wanted_ = StopKind::kNone;
  Leaving leaving_ = Leaving::kNo;
  StopProposal open_;  // the last proposal heard
  bool accepted_ = false;
  // Bound stops that the training thread has not reached yet, by step: at most
  // a checkpoint and a stop after it.
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

// The part of the agreement that rank 0 runs beside its StopMember.
class StopLeader {
 public:
  StopLeader(int world_size, Time now);

  // `words`: the last word of each rank, by rank; nullopt if none could be
  // read. Returns the next word of rank 0.
  LeaderWord Hear(Time now, std::span<const std::optional<MemberWord>> words);
  // Every rank has left, or one was lost: no rank listens any more.
  bool all_left() const { return all_left_; }

 private:
  struct Rank {
    MemberWord word;
    Time heard_at = 0;
  };
  void FindLost(Time now);
  void FindSaves();
  // The step after which all ranks rest; nullopt if they do not.
  std::optional<uint64_t> RestingAfter() const;
  void Decide();
  void Propose(StopKind kind);

  std::vector<Rank> ranks_;
  LeaderWord word_;
  // How many steps ahead of the highest step begun a proposal is. Doubled when
  // a rank refuses, and then kept, as it measures how many steps an agreement
  // takes.
  uint64_t margin_ = 1;
  bool all_left_ = false;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_LEASE_STOP_AGREEMENT_H_
