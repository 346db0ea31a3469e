// What `gavel doctor` says to what it finds: why a run was of no use, which
// state is the usual suspect for a difference, and the remedies. Pure but for
// the output of a run, which is read; thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_

#include <string>
#include <vector>

#include "coordinator/cli/doctor_examination.h"
#include "coordinator/cli/doctor_run.h"

namespace gavel {

struct Advice {
  std::string problem;  // empty: there is none
  std::string remedy;
  bool empty() const { return problem.empty(); }
};

// "1 step", "2 steps".
std::string Plural(uint64_t count, const char* noun);

// The program failed by itself or had to be killed. `what`: "the program, run
// alone,".
Advice AdviseOnEnd(const DoctorRun& run, const char* what, double timeout_s);

// The undisturbed run tells nothing: no runtime, no boundary, no checkpoint, no
// report, one step only, a value that is no number, or only constants.
Advice AdviseOnReference(const DoctorRun& alone, const std::string& program);

// A run under a lease was not paused, or did not go on.
Advice AdviseOnLease(const DoctorLease& lease, const ExaminedRun& run);

// The usual suspect for the earliest of a run's differences.
Advice AdviseOnDifference(const ExaminedRun& run,
                          const ReportDifference& difference);

// Two undisturbed runs differ already.
Advice AdviseOnRandomness(const ReportDifference& difference);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_
