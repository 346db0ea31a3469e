#include <cmath>

#include "models/actor_critic.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// A player that follows the ball.
int64_t Follow(const Pong& game) {
  const auto features = game.Features();
  const float distance = features[1] - features[4];
  return std::abs(distance) < 0.05F ? 0 : distance < 0 ? 1 : 2;
}

TEST(Pong, IsAFunctionOfItsSeedAndTheActions) {
  Pong first({}, 1);
  Pong second({}, 1);
  Pong other({}, 2);
  bool differs = false;
  for (int step = 0; step < 500; ++step) {
    first.Step(step % 3);
    second.Step(step % 3);
    other.Step(step % 3);
    ASSERT_EQ(first.Features(), second.Features());
    differs = differs || first.Features() != other.Features();
  }
  EXPECT_TRUE(differs);
}

TEST(Pong, KeepsEverythingInTheCourtAndTheSpeedInItsLimits) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Pong game({}, seed);
    for (int step = 0; step < 3000; ++step) {
      game.Step(seed % 2 == 0 ? Follow(game) : step / 7 % 3);
      const auto [x, y, speed_x, speed_y, own, opponent] = game.Features();
      ASSERT_LE(std::abs(x), 1);
      ASSERT_LE(std::abs(y), 1);
      // A serve has a speed of 1. The ball is never more than twice as fast,
      // and never flies upright.
      const float speed = std::hypot(speed_x, speed_y);
      ASSERT_GE(speed, 0.999F);
      ASSERT_LE(speed, 2.001F);
      ASSERT_GE(std::abs(speed_x), 0.499F);
      ASSERT_LE(std::abs(own), 0.801F);
      ASSERT_LE(std::abs(opponent), 0.801F);
    }
  }
}

TEST(Pong, TheBallBouncesOffWallsAtTheAngleAtWhichItCame) {
  Pong game({.frames_per_step = 1}, 3);
  int bounces = 0;
  auto before = game.Features();
  for (int step = 0; step < 3000; ++step) {
    game.Step(Follow(game));
    const auto now = game.Features();
    if (now[2] == before[2] && now[3] == -before[3] && before[3] != 0) {
      ++bounces;
      EXPECT_GT(std::abs(now[1]), 0.9F);
    }
    before = now;
  }
  EXPECT_GT(bounces, 5);
}

TEST(Pong, PaddlesTurnTheBallFasterAndByWhereItHits) {
  Pong game({.points = 1000, .frames_per_step = 1}, 5);
  int hits = 0;
  auto before = game.Features();
  for (int step = 0; step < 20'000; ++step) {
    const double reward = game.Step(Follow(game)).reward;
    const auto now = game.Features();
    // The ball turned to the left without a point, so it hit the own paddle.
    if (reward == 0 && before[2] > 0 && now[2] < 0) {
      ++hits;
      const double angle = std::atan2(now[3], -now[2]);
      // The ball hit the paddle within one frame of its present place.
      const double offset = (now[1] - now[4]) / 2 / 0.1;
      EXPECT_NEAR(angle, offset * std::acos(0.5), 0.35);
      EXPECT_NEAR(std::hypot(now[2], now[3]),
                  std::min(2.0, 1.08 * std::hypot(before[2], before[3])), 1e-3);
    }
    before = now;
  }
  EXPECT_GT(hits, 50);
}

TEST(Pong, EndsAGameAtItsPointsAndBeginsAnother) {
  Pong game({.points = 3}, 1);
  double rewards = 0;
  int games = 0;
  for (int step = 0; step < 5000; ++step) {
    const Pong::Outcome outcome = game.Step(0);
    rewards += outcome.reward;
    EXPECT_EQ(rewards, game.own_points() - game.opponent_points());
    EXPECT_EQ(outcome.ended,
              std::max(game.own_points(), game.opponent_points()) == 3);
    if (!outcome.ended) continue;
    ++games;
    rewards = 0;
  }
  EXPECT_GT(games, 10);
}

// Plays many points. Returns those won less those lost, divided by all.
double MarginOf(const PongOptions& options, int64_t (*player)(const Pong&)) {
  Pong game(options, 9);
  double margin = 0;
  double points = 0;
  for (int step = 0; step < 20'000; ++step) {
    const double reward = game.Step(player(game)).reward;
    margin += reward;
    points += std::abs(reward);
  }
  return margin / points;
}

TEST(Pong, AnOpponentOfLimitedSpeedCanBeBeatenAndAFastOneCannot) {
  const auto still = [](const Pong&) { return int64_t{0}; };
  EXPECT_LT(MarginOf({}, still), -0.5);
  EXPECT_GT(MarginOf({.opponent_speed = 0.004}, Follow), 0.5);
  EXPECT_LT(MarginOf({.opponent_speed = 0.1}, still), -0.99);
}

TEST(Pong, GoesOnExactlyFromItsBytes) {
  Pong game({}, 1);
  for (int step = 0; step < 333; ++step) game.Step(step % 3);
  Pong copy({}, 77);
  ASSERT_TRUE(copy.Load(game.Save()));
  for (int step = 0; step < 500; ++step) {
    EXPECT_EQ(game.Step(step % 3).reward, copy.Step(step % 3).reward);
    ASSERT_EQ(game.Save(), copy.Save());
  }
  EXPECT_FALSE(copy.Load("short"));
  EXPECT_EQ(game.Save(), copy.Save());
}

TEST(Pong, DrawsTheLastFourSteps) {
  Pong game({}, 1);
  std::vector<float> picture(Pong::kPictures * Pong::kPixels * Pong::kPixels);
  const size_t size = Pong::kPixels * Pong::kPixels;
  std::vector<float> newest;
  for (int step = 0; step < 30; ++step) {
    game.Step(1);
    game.Draw(picture);
    if (step > 0) {
      EXPECT_TRUE(std::equal(newest.begin(), newest.end(),
                             picture.end() - 2 * static_cast<ptrdiff_t>(size)));
    }
    newest.assign(picture.end() - static_cast<ptrdiff_t>(size), picture.end());
    // The picture shows two paddles of a fifth of the height, and the ball.
    const auto lit = std::count(newest.begin(), newest.end(), 1.0F);
    EXPECT_GT(lit, 2 * 17 * 2);
    EXPECT_LT(lit, 2 * 18 * 4 + 16);
    EXPECT_EQ(lit + std::count(newest.begin(), newest.end(), 0.0F),
              Pong::kPixels * Pong::kPixels);
  }
}

}  // namespace
}  // namespace gavel::models
