// The ideal: each job gets its allocated fractions all the time, as if rounds
// were infinitely short and preemption free (Gavel's --ideal). The policy
// alone, without engine and mechanism: what the round mechanism is measured
// against. Used through TraceSimulation. Not thread-safe.
#ifndef GAVEL_SIMULATOR_FLUID_SIMULATION_H_
#define GAVEL_SIMULATOR_FLUID_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulator/simulated_work.h"
#include "simulator/trace_simulation.h"

namespace gavel {

class FluidSimulation : public WorkSimulation {
 public:
  FluidSimulation(SimulationOptions options, SimulatedWork work,
                  std::unique_ptr<Policy> policy);

  bool Run(uint64_t events) override;
  Time now() const override { return now_; }
  SimulationResult Result() const override;
  absl::StatusOr<std::string> Checkpoint() const override;
  absl::Status Resume(std::string_view checkpoint) override;

 private:
  struct Active {
    size_t index = 0;
    double steps = 0;        // done
    double steps_per_s = 0;  // by the present allocation
    double isolated_s = 0;
    double time_received_s = 0;
    std::vector<double> share;  // [J] by type, its part of pairs halved
    double share_total = 0;
    SimulatedJob told;
  };

  bool RunOne();
  void Advance(Time to);
  void Arrive();
  void End();
  void Solve();
  PolicyProblem Problem() const;
  void AddPairs(PolicyProblem& problem) const;
  void Take(const PolicyResult& result);
  void Give(const ShareUnit& unit, size_t column, double share);

  Time now_ = 0;
  bool each_round_ = false;     // the policy wants to be asked for each
  std::vector<Active> active_;  // by index
  double total_cost_ = 0;
  uint64_t solves_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_FLUID_SIMULATION_H_
