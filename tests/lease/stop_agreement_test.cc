// The agreement of a gang on the step to stop at: by example, and by seed with
// ranks of any speed that read old words, come late or are lost.
#include "runtime/lease/stop_agreement.h"

#include <random>

#include "tests/support/test.h"

namespace gavel {
namespace {

using Passage = StopMember::Passage;

// Two ranks and their leader, words carried by hand.
struct Pair {
  StopMember rank0{0, 0};
  StopMember rank1{0, 0};
  StopLeader leader{2, 0};

  // Words go around `times` times.
  void Talk(int times = 1, Time now = 0) {
    for (int i = 0; i < times; ++i) {
      const std::vector<std::optional<MemberWord>> words = {rank0.Word(),
                                                            rank1.Word()};
      const LeaderWord word = leader.Hear(now, words);
      rank0.Hear(now, word);
      rank1.Hear(now, word);
    }
  }
};

class StopAgreement : public Test {
 protected:
  Pair pair;
};

TEST_F(StopAgreement, NothingStopsWhatNobodyWantsToStop) {
  for (uint64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(pair.rank0.Pass(step), Passage::kGoOn);
    EXPECT_EQ(pair.rank1.Pass(step), Passage::kGoOn);
    pair.Talk();
  }
}

TEST_F(StopAgreement, ARankThatSaidYesWaitsAtThatStepUntilAllHave) {
  ASSERT_EQ(pair.rank0.Pass(0), Passage::kGoOn);
  ASSERT_EQ(pair.rank1.Pass(0), Passage::kGoOn);
  pair.rank1.Want(StopKind::kStop);
  pair.Talk(1);  // proposed: the boundary after step 1
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kWait);
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kWait);
  pair.Talk(1);
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kStop);
  EXPECT_EQ(pair.rank1.Pass(1), Passage::kStop);
}

TEST_F(StopAgreement, ARankThatIsBeyondTheStepMovesItFurther) {
  pair.rank0.Pass(0);
  pair.rank1.Pass(0);
  pair.rank0.Want(StopKind::kStop);
  const std::vector<std::optional<MemberWord>> words = {pair.rank0.Word(),
                                                        pair.rank1.Word()};
  const LeaderWord first = pair.leader.Hear(0, words);
  EXPECT_EQ(first.proposal.step, 1);
  ASSERT_EQ(pair.rank1.Pass(1), Passage::kGoOn);  // it has not heard
  pair.rank0.Hear(0, first);
  pair.rank1.Hear(0, first);
  EXPECT_FALSE(pair.rank1.Word().accepted);
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kWait);
  pair.Talk(1);  // refused; the later one is proposed
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kGoOn);
  pair.Talk(2);
  EXPECT_EQ(pair.rank0.Pass(2), Passage::kGoOn);
  EXPECT_EQ(pair.rank1.Pass(2), Passage::kGoOn);
  EXPECT_EQ(pair.rank0.Pass(3), Passage::kStop);
  EXPECT_EQ(pair.rank1.Pass(3), Passage::kStop);
}

TEST_F(StopAgreement, ACheckpointGoesOnAndAStopThatIsWantedMeanwhileFollows) {
  pair.rank0.Pass(0);
  pair.rank1.Pass(0);
  pair.rank0.Want(StopKind::kCheckpoint);
  pair.Talk(1);
  pair.rank1.Want(StopKind::kStop);
  pair.Talk(4);
  for (StopMember* rank : {&pair.rank0, &pair.rank1}) {
    EXPECT_EQ(rank->Pass(1), Passage::kCheckpoint);
    EXPECT_EQ(rank->Pass(1), Passage::kGoOn);
    EXPECT_EQ(rank->Pass(2), Passage::kStop);
  }
}

TEST_F(StopAgreement, ACheckpointThatBindsIsNotAskedForTwice) {
  pair.rank0.Pass(0);
  pair.rank1.Pass(0);
  pair.rank0.Want(StopKind::kCheckpoint);
  pair.Talk(4);
  pair.rank0.Want(StopKind::kCheckpoint);  // still due, as it is not yet done
  pair.Talk(4);
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kCheckpoint);
  EXPECT_EQ(pair.rank1.Pass(1), Passage::kCheckpoint);
  pair.Talk(4);
  for (uint64_t step = 1; step < 50; ++step) {
    EXPECT_EQ(pair.rank0.Pass(step), Passage::kGoOn);
    EXPECT_EQ(pair.rank1.Pass(step), Passage::kGoOn);
    pair.Talk(1);
  }
}

TEST_F(StopAgreement, GoingPastAStopThatBindsWithoutAskingIsSaid) {
  pair.rank0.Pass(0);
  pair.rank1.Pass(0);
  pair.rank0.Want(StopKind::kStop);
  pair.Talk(3);
  EXPECT_EQ(pair.rank0.Pass(2), Passage::kMissed);
}

TEST_F(StopAgreement, ASilentRankIsLostAndOneThatIsDoneIsNot) {
  pair.Talk(1, 1);
  const auto hear = [&](Time now, std::optional<MemberWord> word1) {
    return pair.leader.Hear(
        now, std::vector{std::optional(pair.rank0.Word()), std::move(word1)});
  };
  EXPECT_EQ(hear(1 + kRankSilenceMax_s, std::nullopt).lost_rank, -1);
  EXPECT_EQ(hear(1.1 + kRankSilenceMax_s, std::nullopt).lost_rank, 1);
  EXPECT_TRUE(pair.leader.all_left());

  Pair done;
  done.rank1.Leave(Leaving::kDone);
  done.Talk(1, 1);
  EXPECT_EQ(done.leader
                .Hear(100, std::vector{std::optional(done.rank0.Word()),
                                       std::optional<MemberWord>()})
                .lost_rank,
            -1);
  EXPECT_FALSE(done.leader.all_left());
  done.rank0.Leave(Leaving::kDone);
  done.Talk(1, 101);
  EXPECT_TRUE(done.leader.all_left());
}

TEST_F(StopAgreement, ARankThatLeavesAtAStepOfItsOwnBreaksTheGangAtOnce) {
  pair.Talk(1, 1);
  pair.rank1.Leave(Leaving::kBroken);
  pair.Talk(1, 1.02);
  EXPECT_EQ(pair.rank0.lost_rank(1.02), 1);
}

TEST_F(StopAgreement, ARankThatCannotWriteItsPartIsKnownToAll) {
  const Save first{20, 1};
  pair.Talk(1);
  EXPECT_EQ(pair.rank0.failed_rank(first), -1);
  pair.rank1.FailSave(first);
  pair.Talk(1);
  pair.rank0.FailSave(first);  // as it was told so
  pair.Talk(1);
  for (const StopMember* rank : {&pair.rank0, &pair.rank1}) {
    EXPECT_EQ(rank->failed_rank(first), 1);
    // The next ones are not to be given up for it.
    EXPECT_EQ(rank->failed_rank({20, 2}), -1);
    EXPECT_EQ(rank->failed_rank({30, 1}), -1);
  }
  pair.rank0.FailSave({30, 1});
  pair.Talk(1);
  EXPECT_EQ(pair.rank1.failed_rank({30, 1}), 0);
  EXPECT_EQ(pair.rank1.lost_rank(0), -1);
}

TEST_F(StopAgreement, ASaveHasBegunWhenAllRanksThatAreThereHaveBegunIt) {
  const Save first{20, 1};
  pair.Talk(1);
  pair.rank1.BeginSave(first);
  pair.Talk(1);
  EXPECT_FALSE(pair.rank0.all_have_begun(first));
  EXPECT_FALSE(pair.rank1.all_have_begun(first));
  pair.rank0.BeginSave(first);
  pair.Talk(1);
  EXPECT_TRUE(pair.rank0.all_have_begun(first));
  EXPECT_TRUE(pair.rank1.all_have_begun(first));
  EXPECT_FALSE(pair.rank1.all_have_begun({20, 2}));
  // One that has left begins no more.
  pair.rank1.BeginSave({20, 2});
  pair.rank0.Leave(Leaving::kDone);
  pair.Talk(1);
  EXPECT_TRUE(pair.rank1.all_have_begun({20, 2}));
}

TEST_F(StopAgreement, ARankIsLeftBehindByOneWhoseLoopHasEnded) {
  pair.Talk(1, 1);
  pair.rank0.End();
  pair.Talk(1, 2);
  pair.Talk(1, 20);
  EXPECT_FALSE(pair.rank1.is_left_behind(2 + kEndedRankWait_s));
  EXPECT_TRUE(pair.rank1.is_left_behind(2.1 + kEndedRankWait_s));
  EXPECT_FALSE(pair.rank0.is_left_behind(2.1 + kEndedRankWait_s));
  pair.rank1.End();
  EXPECT_FALSE(pair.rank1.is_left_behind(2.1 + kEndedRankWait_s));
}

TEST_F(StopAgreement, RanksThatAllRestStopWhereTheyAre) {
  for (const bool later_binds : {false, true}) {
    SCOPED_TRACE(later_binds);
    pair = Pair();
    pair.rank0.Pass(0);
    pair.rank1.Pass(0);
    if (later_binds) {
      pair.rank0.Pass(1);
      pair.rank0.Want(StopKind::kStop);
      pair.Talk(4);  // after step 2, of which rank 1 hears in step 1
      pair.rank1.Pass(1);
    } else {
      pair.rank0.Pass(1);
      pair.rank1.Pass(1);
    }
    // As far as was known the second step was under way.
    EXPECT_EQ(pair.rank0.Pass(1, /*begins=*/false), Passage::kGoOn);
    pair.rank0.Want(StopKind::kStop);
    pair.Talk(4);
    EXPECT_EQ(pair.rank0.Pass(1, false), Passage::kGoOn) << "one does not rest";
    EXPECT_EQ(pair.rank1.Pass(1, false), Passage::kGoOn);
    pair.Talk(4);
    EXPECT_EQ(pair.rank1.Pass(1, false), Passage::kStop);
    EXPECT_EQ(pair.rank0.Pass(1, false), Passage::kStop);
  }
}

TEST_F(StopAgreement, ARankThatHasRestedGoesPastOrWaitsAsAnyOther) {
  pair.rank0.Pass(0);
  pair.rank1.Pass(0);
  EXPECT_EQ(pair.rank0.Pass(1, false), Passage::kGoOn);
  EXPECT_EQ(pair.rank1.Pass(1, false), Passage::kGoOn);
  pair.rank0.Want(StopKind::kStop);
  const LeaderWord word =
      pair.leader.Hear(0, std::vector{std::optional(pair.rank0.Word()),
                                      std::optional(pair.rank1.Word())});
  EXPECT_EQ(word.proposal.step, 1u);
  // Rank 1 is in its next step before it hears of it.
  EXPECT_EQ(pair.rank1.Pass(1), Passage::kGoOn);
  pair.rank0.Hear(0, word);
  pair.rank1.Hear(0, word);
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kWait);
  pair.Talk(1);  // refused
  EXPECT_EQ(pair.rank0.Pass(1), Passage::kGoOn);
  pair.Talk(3);
  for (StopMember* rank : {&pair.rank0, &pair.rank1}) {
    EXPECT_EQ(rank->Pass(2), Passage::kGoOn);
    EXPECT_EQ(rank->Pass(3), Passage::kStop);
  }
}

TEST_F(StopAgreement, ASilentLeaderIsLost) {
  StopMember member(0, 10);
  EXPECT_EQ(member.lost_rank(10 + kRankSilenceMax_s), -1);
  EXPECT_EQ(member.lost_rank(10.1 + kRankSilenceMax_s), 0);
}

TEST_F(StopAgreement, WordsSurviveTheirEncodingAndOthersAreRefused) {
  MemberWord member{7,
                    8,
                    StopKind::kStop,
                    9,
                    true,
                    false,
                    Leaving::kBroken,
                    {10, 2},
                    {11, 1},
                    true,
                    true};
  const auto member_read = DecodeMemberWord(EncodeWord(member));
  ASSERT_TRUE(member_read);
  EXPECT_EQ(EncodeWord(*member_read), EncodeWord(member));
  EXPECT_EQ(member_read->leaving, Leaving::kBroken);
  EXPECT_EQ(member_read->failed_save, (Save{10, 2}));
  EXPECT_EQ(member_read->begun_save, (Save{11, 1}));
  EXPECT_TRUE(member_read->ended);
  EXPECT_TRUE(member_read->rests);
  LeaderWord leader{
      1, {2, 3, StopKind::kCheckpoint, true}, -1, {10, 2}, 4, {11, 1}, true};
  const auto leader_read = DecodeLeaderWord(EncodeWord(leader));
  ASSERT_TRUE(leader_read);
  EXPECT_EQ(leader_read->lost_rank, -1);
  EXPECT_EQ(leader_read->failed_save, (Save{10, 2}));
  EXPECT_EQ(leader_read->failed_rank, 4);
  EXPECT_EQ(leader_read->begun_save, (Save{11, 1}));
  EXPECT_TRUE(leader_read->any_ended);
  EXPECT_EQ(leader_read->proposal.step, 3);
  for (const char* text :
       {"", " ", "1", "1 2 3 4 5", "1 2 3 0 0 0 9 1 0 0", "a b c d e f",
        "1 2 0 3 0 0 0 0 0", "1 2 9 3 0 0 0 0 0 0 0 0",
        "-1 2 0 0 0 0 0 0 0 0 0 0", "1 2 0 0 0 0 0 0 0 0 0 2",
        "-1 2 0 0 0 0 0 0 0 0 0 0 0", "1 2 0 0 0 0 0 0 0 0 0 0 2",
        "1  2 0 0 0 0 0 0 0 0 0"}) {
    EXPECT_FALSE(DecodeMemberWord(text)) << text;
    EXPECT_FALSE(DecodeLeaderWord(text)) << text;
  }
}

// ---- by seed

constexpr int kAgreementSeeds = 4000;
constexpr Time kAgreementEnd_s = 60;
// Steps that a rank gets ahead of another where no collective holds it.
constexpr uint64_t kDriftMax = 5;

// A gang in virtual time. Words lie in registers, as in the store; a reader may
// get one that was there some time ago.
class Gang {
 public:
  explicit Gang(uint32_t seed) : random_(seed) {
    world_size_ = 1 + Below(6);
    lockstep_ = Below(3) > 0;
    history_.resize(static_cast<size_t>(world_size_));
    for (int rank = 0; rank < world_size_; ++rank) {
      Rank one{StopMember(first_step_, 0)};
      one.steps_done = first_step_;
      one.step_s = step_s_ * (lockstep_ ? 1 : 0.2 + Uniform() * 3);
      one.wants_stop_at = Below(3) == 0 ? 1 + Uniform() * 5 : kNever;
      one.dies_at = Below(40) == 0 ? Uniform() * 6 : kNever;
      one.next_talk = Uniform() * 0.05;
      ranks_.push_back(one);
    }
    ranks_[0].wants_stop_at =
        std::min(ranks_[0].wants_stop_at, 2 + Uniform() * 4);
    checkpoint_every_s_ = 0.2 + Uniform();
    any_dies_ = std::any_of(ranks_.begin(), ranks_.end(),
                            [](const Rank& r) { return r.dies_at < kNever; });
  }

  void Run() {
    StopLeader leader(world_size_, 0);
    for (Time now = 0; now < kAgreementEnd_s && !Ended(now); now += 0.001) {
      for (size_t i = 0; i < ranks_.size(); ++i) {
        if (now >= ranks_[i].dies_at) continue;
        Train(now, ranks_[i]);
        if (now >= ranks_[i].next_talk) Talk(now, i, leader);
      }
    }
  }

  // All stopped at one step, after the same checkpoints; or all that live know
  // of the rank that was lost.
  void Check(uint32_t seed) const {
    bool lost = false;
    for (const Rank& rank : ranks_) {
      ASSERT_FALSE(rank.missed) << "seed " << seed;
      if (rank.dies_at == kNever && !rank.stopped) lost = true;
    }
    ASSERT_TRUE(!lost || any_dies_) << "seed " << seed << ": no end";
    const Rank* first = nullptr;
    for (const Rank& rank : ranks_) {
      if (lost && rank.dies_at == kNever && !rank.stopped) {
        ASSERT_TRUE(rank.knows_lost) << "seed " << seed;
      }
      if (!rank.stopped) continue;
      if (first == nullptr) first = &rank;
      ASSERT_EQ(rank.steps_done, first->steps_done) << "seed " << seed;
      ASSERT_EQ(rank.checkpoints, first->checkpoints) << "seed " << seed;
    }
  }

 private:
  struct Rank {
    StopMember member;
    uint64_t steps_done = 0;
    double step_s = 0;
    Time busy_until = 0;
    bool in_step = false;
    int evaluations_left = 0;  // pieces of it, with a boundary before each
    Time wants_stop_at = kNever;
    Time dies_at = kNever;
    Time next_talk = 0;
    Time next_checkpoint = 0;
    bool stopped = false;
    bool missed = false;
    bool knows_lost = false;
    std::vector<uint64_t> checkpoints = {};
  };

  int Below(int n) { return static_cast<int>(random_() % unsigned(n)); }
  double Uniform() { return double(random_()) / double(random_.max()); }

  bool Ended(Time now) const {
    return std::all_of(ranks_.begin(), ranks_.end(), [now](const Rank& rank) {
      return rank.stopped || rank.knows_lost || now >= rank.dies_at;
    });
  }

  void Train(Time now, Rank& rank) {
    if (rank.stopped || rank.knows_lost || now < rank.busy_until) return;
    if (rank.in_step) {
      // With collectives a step ends only when all have begun it.
      const auto begun = [&](const Rank& other) {
        const uint64_t behind = lockstep_ ? 0 : kDriftMax;
        return other.steps_done + (other.in_step ? 1 : 0) + behind >
               rank.steps_done;
      };
      if (!std::all_of(ranks_.begin(), ranks_.end(), begun)) return;
      rank.in_step = false;
      ++rank.steps_done;
      if (evaluation_every_ > 0 && rank.steps_done % evaluation_every_ == 0) {
        rank.evaluations_left = Below(20);
      }
    }
    if (now >= rank.wants_stop_at) rank.member.Want(StopKind::kStop);
    if (&rank == ranks_.data() && now >= rank.next_checkpoint) {
      rank.member.Want(StopKind::kCheckpoint);
    }
    // At the first of them as at any boundary, as the session does.
    const bool begins =
        rank.evaluations_left == 0 || rank.evaluations_left > 17;
    switch (rank.member.Pass(rank.steps_done, begins)) {
      case Passage::kGoOn:
        if (rank.evaluations_left > 0) --rank.evaluations_left;
        rank.in_step = begins && rank.evaluations_left == 0;
        rank.busy_until = now + rank.step_s * (0.5 + Uniform());
        return;
      case Passage::kWait:
        return;
      case Passage::kCheckpoint:
        rank.checkpoints.push_back(rank.steps_done);
        rank.next_checkpoint = now + checkpoint_every_s_;
        return;
      case Passage::kStop:
        rank.stopped = true;
        return;
      case Passage::kMissed:
        rank.missed = true;
        return;
    }
  }

  void Talk(Time now, size_t i, StopLeader& leader) {
    Rank& rank = ranks_[i];
    rank.next_talk = now + 0.01 + Uniform() * 0.03;
    if (Below(200) == 0) rank.next_talk = now + Uniform() * 2;  // starved
    history_[i].push_back(rank.member.Word());
    if (i == 0) {
      std::vector<std::optional<MemberWord>> words;
      for (const auto& all : history_) words.push_back(Old(all));
      leader_history_.push_back(leader.Hear(now, words));
    }
    if (const auto word = Old(leader_history_)) rank.member.Hear(now, *word);
    if (rank.member.lost_rank(now) >= 0) rank.knows_lost = true;
  }

  // Mostly the last word, sometimes an older one.
  template <class Word>
  std::optional<Word> Old(const std::vector<Word>& words) {
    if (words.empty()) return std::nullopt;
    const int back = Below(4) == 0 ? Below(4) : 0;
    const size_t last = words.size() - 1;
    return words[last - std::min(last, static_cast<size_t>(back))];
  }

  std::mt19937 random_;
  int world_size_ = 1;
  bool lockstep_ = false;
  bool any_dies_ = false;
  const uint64_t first_step_ = random_() % 1000;
  const double step_s_ = 0.001 + 0.2 * Uniform() * Uniform() * Uniform();
  double checkpoint_every_s_ = 0;
  const uint64_t evaluation_every_ = random_() % 12;  // steps; 0: never
  std::vector<Rank> ranks_;
  std::vector<std::vector<MemberWord>> history_;
  std::vector<LeaderWord> leader_history_;
};

TEST(StopAgreementProperty, AllRanksStopAtOneStepOrKnowWhoWasLost) {
  for (uint32_t seed = 0; seed < kAgreementSeeds; ++seed) {
    Gang gang(seed);
    gang.Run();
    gang.Check(seed);
    if (Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace gavel
