#include "coordinator/server/gatekeeper.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr char kSecret[] = "a secret of the coordinator, 40 letters.";

JournalPosition Proven(PositionProofs& proofs, uint64_t term, uint64_t seq) {
  JournalPosition position{term, seq};
  position.proof = proofs.Of(position);
  return position;
}

TEST(PositionProofs, HoldForTheirPositionAloneAndOutliveTheProcess) {
  auto proofs = PositionProofs::Make(kSecret);
  ASSERT_OK(proofs.status());
  auto later = PositionProofs::Make(kSecret);
  ASSERT_OK(later.status());
  const JournalPosition position = Proven(*proofs, 3, 700);
  EXPECT_TRUE(proofs->Holds(position));
  EXPECT_TRUE(later->Holds(position));
  for (const auto& [term, seq] :
       {std::pair{4, 700}, std::pair{3, 701}, std::pair{700, 3}}) {
    JournalPosition other = position;
    other.term = static_cast<uint64_t>(term);
    other.seq = static_cast<uint64_t>(seq);
    EXPECT_FALSE(later->Holds(other));
  }
}

TEST(PositionProofs, NoneAndThoseOfAnotherKeyDoNotHold) {
  auto proofs = PositionProofs::Make(kSecret);
  auto others = PositionProofs::Make(std::string(kSecret) + "x");
  ASSERT_OK(proofs.status());
  ASSERT_OK(others.status());
  EXPECT_FALSE(proofs->Holds({3, 700}));
  EXPECT_FALSE(proofs->Holds({0, 0}));
  EXPECT_FALSE(proofs->Holds(Proven(*others, 3, 700)));
  for (int bit = 0; bit < 64; ++bit) {
    JournalPosition position = Proven(*proofs, 3, 700);
    position.proof.first ^= uint64_t{1} << bit;
    EXPECT_FALSE(proofs->Holds(position));
    position = Proven(*proofs, 3, 700);
    position.proof.second ^= uint64_t{1} << bit;
    EXPECT_FALSE(proofs->Holds(position));
  }
}

// A proof that was given out stays good over updates. The figures are Python's:
// hashlib.blake2b(struct.pack("<QQ", 3, 700), key=k, digest_size=16), and k of
// 32 bytes in the same way of the purpose and the secret.
TEST(PositionProofs, StayWhatTheyAre) {
  auto proofs = PositionProofs::Make(kSecret);
  ASSERT_OK(proofs.status());
  const PositionProof proof = proofs->Of({3, 700});
  EXPECT_EQ(proof.first, 0x4e65b85a0944c3ffU);
  EXPECT_EQ(proof.second, 0xe6ddc0a1cdced425U);
  // Whatever was asked for in between.
  Proven(*proofs, 2, 700);
  EXPECT_EQ(proofs->Of({3, 700}), proof);
}

}  // namespace
}  // namespace gavel
