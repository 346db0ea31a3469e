// The test that every workload of examples/ has to pass: whatever happens to
// it, each step has the same loss as in an undisturbed run.
//
// A workload is a program that trains through gavel::Iterator, reports "loss"
// in each step and, where it is data parallel, takes --global-batch-size.
#ifndef GAVEL_TESTS_MODELS_WORKLOAD_FIXTURE_H_
#define GAVEL_TESTS_MODELS_WORKLOAD_FIXTURE_H_

#include <ostream>

#include "tests/support/gavel_fixture.h"

namespace gavel::testing {

struct Workload {
  std::string program;  // of build/bin
  std::vector<std::string> flags;
  uint64_t steps = 12;  // of a run; a multiple of 3
  // How far the loss of a gang's step may be off, relative to that of one
  // worker. 0 when only one worker can train it.
  double gang_tolerance = 0;
  std::string name = "";  // of its tests; empty: the program's

  friend void PrintTo(const Workload& workload, std::ostream* out) {
    *out << workload.program;
  }
};

class WorkloadTest : public GavelTest {
 protected:
  // Runs the workload alone. Then pauses it, moves it to another slot, kills it
  // with SIGKILL and starts it again (`gavel doctor`). On one worker with one
  // thread, every value that it reports has to be equal to the bit.
  void ExpectSameWhenDisturbed(const Workload& workload);

  // Trains a third of the steps each with one worker, with two, which are
  // killed with SIGKILL in the middle and start again, and with one again.
  // Every step's loss has to be that of one worker alone, within
  // gang_tolerance.
  void ExpectSameWhenResized(const Workload& workload);

  // The mean of a reported value over the ranks, by step.
  using Curve = std::map<uint64_t, double>;

  // Continues from the last generation in folder()/NAME up to `steps`; 0: until
  // the program ends. `kill`: sends SIGKILL once there is a later generation;
  // false when the program ended before that.
  bool Train(const Workload& workload, const std::string& name, int workers,
             uint64_t steps, bool kill);
  Curve CurveOf(const std::string& name,
                const std::string& wanted = "loss") const;

 private:
  uint64_t LastStep(const std::string& name) const;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MODELS_WORKLOAD_FIXTURE_H_
