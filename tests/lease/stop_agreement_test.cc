// The agreement of a gang on the step to stop at, by example; with ranks of any
// speed that come late or are lost: tests/simulation.
#include "runtime/lease/stop_agreement.h"

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

}  // namespace
}  // namespace gavel
