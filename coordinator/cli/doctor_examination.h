// What `gavel doctor` finds out: whether a training program that is killed goes
// on from its last checkpoint exactly as if nothing had happened. It runs the
// program alone, runs it again and kills it in the middle, starts it once more,
// and compares every value that it reports. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/doctor_run.h"

namespace gavel {

struct ExaminationOptions {
  uint64_t steps = 20;            // at least 2
  std::set<std::string> ignored;  // reported names that are not compared
};

struct Verdict {
  bool passed = false;
  std::string text;  // what was found; after a failure the remedy, too
};

// Prints a line on each run to stdout. Errors: those of RunUnderDoctor.
absl::StatusOr<Verdict> Examine(const DoctorProgram& program,
                                const ExaminationOptions& options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_
