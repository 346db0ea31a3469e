// What every workload of examples/ has to hold: whatever happens to it, the
// same loss in each step as in a run that nobody disturbs.
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
  // Of a gang: how far a step's loss may be off, as a part of it. 0: it is
  // trained by one worker only.
  double gang_tolerance = 0;

  friend void PrintTo(const Workload& workload, std::ostream* out) {
    *out << workload.program;
  }
};

class WorkloadTest : public GavelTest {
 protected:
  // Runs it alone, and then pauses it, moves it to another slot, and kills it
  // by SIGKILL and starts it again (`gavel doctor`): on one worker with one
  // thread, every value that it reports is equal to the bit.
  void ExpectSameWhenDisturbed(const Workload& workload);

  // One worker, two, which are killed by SIGKILL in the middle and start again,
  // and one again, each for a third of the steps: every step's loss is that of
  // one worker alone, within gang_tolerance.
  void ExpectSameWhenResized(const Workload& workload);

  // Mean of a reported value over the ranks, by step.
  using Curve = std::map<uint64_t, double>;

  // Goes on from the last generation in folder()/NAME up to `steps`; 0: as far
  // as the program wants. `kill`: by
  // SIGKILL, once there is a generation beyond that one; false when it came to
  // its end before.
  bool Train(const Workload& workload, const std::string& name, int workers,
             uint64_t steps, bool kill);
  Curve CurveOf(const std::string& name,
                const std::string& wanted = "loss") const;

 private:
  uint64_t LastStep(const std::string& name) const;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MODELS_WORKLOAD_FIXTURE_H_
