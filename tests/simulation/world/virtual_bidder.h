// The process of an app that bids itself (docs/apps.md), in virtual time. It
// runs on a server, whose network it shares, and says hello again and again.
// Its habit is how its answers are wrong. Used by VirtualCluster only. Not
// thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_BIDDER_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_BIDDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/bids.h"
#include "core/messages.h"
#include "tests/simulation/world/virtual_world.h"

namespace gavel {

enum class BidHabit : uint8_t {
  kPrompt,        // sound answers in time
  kLate,          // sound answers, of which many come too late
  kSilent,        // says hello and answers nothing
  kMalformed,     // bids and divisions that make no sense
  kOverCapacity,  // asks for more than is offered, divides more than it won
  kLying,         // sound answers in time, with a rho that is too large
};
inline constexpr uint64_t kBidHabits = 6;

class VirtualBidder {
 public:
  // Borrows the world.
  VirtualBidder(BidderKey key, BidHabit habit, size_t server,
                VirtualWorld& world);

  void Receive(const Message& message);
  void set_habit(BidHabit habit) { habit_ = habit; }
  size_t server() const { return server_; }

 private:
  void SayHello();
  void Answer(const BidRequest& offer);
  void Answer(const DivideRequest& won);
  void Answer(const BidderNotice&) {}
  template <class M>
  void Answer(const M&) {}
  // Runs `task` after the delay if the process is still there.
  void After(double delay_s, std::function<void()> task);
  double Delay() const;
  OwnBid BidFor(const BidRequest& offer) const;
  std::vector<JobPlace> Divide(const DivideRequest& won) const;
  void Spoil(const BidRequest& offer, OwnBid& bid) const;
  void Spoil(std::vector<JobPlace>& places) const;

  const BidderKey key_;
  BidHabit habit_;
  const size_t server_;
  VirtualWorld& world_;
  BidRequest offer_;  // the last one
  std::shared_ptr<int> life_ = std::make_shared<int>();
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_BIDDER_H_
