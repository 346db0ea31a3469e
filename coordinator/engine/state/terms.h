// The settings in force: of the term that the present row of the journal
// belongs to, whatever this engine was made with.
//
// Not thread-safe. Snapshot fields: the six that are journaled beside
// event::Settings; the settings themselves end a snapshot.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_TERMS_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_TERMS_H_

#include <tuple>
#include <utility>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/units.h"

namespace gavel::engine {

class Terms {
 public:
  explicit Terms(EngineOptions options)
      : options_(std::move(options)),
        given_(options_),
        round_duration_s_(options_.round_duration_s),
        lease_duration_s_(options_.lease_duration_s),
        mechanism_(options_.mechanism),
        queue_(options_.queue),
        memory_rounds_(options_.memory_rounds) {}

  // Valid as long as this object; the settings in it change with the term.
  const EngineOptions& options() const { return options_; }
  double round_duration_s() const { return round_duration_s_; }
  double lease_duration_s() const { return lease_duration_s_; }
  MechanismKind mechanism() const { return mechanism_; }
  QueueKind queue() const { return queue_; }
  double memory_rounds() const { return memory_rounds_; }
  // When whatever is granted until `now` is over by every clock.
  Time LeasesOver(Time now) const {
    return now + lease_duration_s_ * (1 + options_.drift);
  }

  // The settings for a row that begins a term: this engine's own.
  void Tell(event::CoordinatorStarted& start) const {
    start.round_duration_s = options_.round_duration_s;
    start.lease_duration_s = options_.lease_duration_s;
    start.mechanism = options_.mechanism;
    start.queue = options_.queue;
    start.memory_rounds = options_.memory_rounds;
    start.settings = {given_, true};
  }
  // 0: an older row that does not tell.
  void TakeDurations(Time now, const event::CoordinatorStarted& start) {
    if (start.wall_s > 0) options_.wall_offset_s = start.wall_s - now;
    if (start.round_duration_s > 0) round_duration_s_ = start.round_duration_s;
    if (start.lease_duration_s > 0) lease_duration_s_ = start.lease_duration_s;
    mechanism_ = start.mechanism;
    queue_ = start.queue;
    memory_rounds_ = start.memory_rounds;
  }

  event::Settings settings() const { return {options_, true}; }
  void TakeSettings(const event::Settings& settings) {
    if (settings.told) static_cast<DecisionSettings&>(options_) = settings;
  }
  // Of the policy that decides now.
  void SetPolicy(bool packing, bool progress) {
    options_.packing = options_.pair_trials = packing;
    options_.progress = progress;
  }

  static auto State(auto& t) {
    return std::tie(t.round_duration_s_, t.lease_duration_s_, t.mechanism_,
                    t.queue_, t.memory_rounds_, t.options_.wall_offset_s);
  }

 private:
  EngineOptions options_;
  const DecisionSettings given_;  // as the engine was made
  double round_duration_s_, lease_duration_s_;
  MechanismKind mechanism_;
  QueueKind queue_;
  double memory_rounds_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_TERMS_H_
