// The game of Pong, played against an opponent who follows the ball at a
// limited speed. Positions and speeds are real numbers in a court of 1 x 1,
// (0, 0) at the top left; the opponent's paddle is on the left. The ball
// bounces off the walls at the angle at which it came, and off a paddle at one
// that depends on where it hits, a little faster each time.
//
// All that happens is a function of the seed and the actions. A value;
// thread-safe as one.
#ifndef GAVEL_MODELS_PONG_H_
#define GAVEL_MODELS_PONG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gavel::models {

struct PongOptions {
  int64_t points = 21;            // that end a game, > 0
  int64_t frames_per_step = 4;    // that an action lasts, > 0
  double opponent_speed = 0.006;  // at most, per frame
};

class Pong {
 public:
  static constexpr int64_t kActions = 3;  // stay, up, down
  static constexpr size_t kFeatures = 6;
  static constexpr size_t kPixels = 84;  // the height and the width
  static constexpr size_t kPictures = 4;

  struct Outcome {
    double reward = 0;   // 1 for each point won, -1 for each lost
    bool ended = false;  // the game; the next step begins another
  };

  Pong(const PongOptions& options, uint64_t seed);

  // action: in [0, kActions).
  Outcome Step(int64_t action);

  // Ball (place, then speed), own paddle and opponent's, each about -1 to 1.
  std::array<float, kFeatures> Features() const;
  // The last kPictures steps, the newest last: kPixels rows of kPixels each,
  // 0 and 1. picture: kPictures x kPixels x kPixels.
  void Draw(std::span<float> picture) const;

  int64_t own_points() const { return state_.own_points; }
  int64_t opponent_points() const { return state_.opponent_points; }

  // The game as bytes, for another with the same options. False, and nothing
  // changes: not such bytes.
  std::string Save() const;
  bool Load(const std::string& bytes);

 private:
  struct Positions {
    double ball_x = 0.5;
    double ball_y = 0.5;
    double own_y = 0.5;  // middle of the paddle
    double opponent_y = 0.5;
  };
  // Without padding, since it is saved as it lies in memory.
  struct State {
    std::array<Positions, kPictures> pictures{};  // the newest last
    double speed_x = 0;                           // per frame
    double speed_y = 0;
    int64_t own_points = 0;
    int64_t opponent_points = 0;
    uint64_t random = 0;
  };

  double Uniform(double low, double high);
  void Serve(double direction);
  double Frame(int64_t action);
  bool Bounce(double old_x, double paddle_x, double paddle_y);

  PongOptions options_;
  State state_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_PONG_H_
