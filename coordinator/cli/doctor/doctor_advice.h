// What `gavel doctor` says about what it finds: why a run was of no use, which
// state is the usual cause of a difference, and the remedies. Pure, except that
// it reads the output of a run; thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ADVICE_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ADVICE_H_

#include <string>

#include "coordinator/cli/doctor/doctor_examination.h"
#include "coordinator/cli/doctor/doctor_run.h"

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

// A run under leases was not paused, or did not continue.
Advice AdviseOnLease(const DoctorLeases& leases, const ExaminedRun& run);

// The suspect for the earliest of a run's differences: what the account says is
// not tracked, a `break`, else the usual one. `equal_name`: where it is the
// run's only difference, another name that is equal at its step; else empty.
Advice AdviseOnDifference(const ExaminedRun& run,
                          const ReportDifference& difference,
                          const DoctorAccount& account,
                          const std::string& equal_name = "");

// All that was reported is equal, and tracked state is not. `names`: of it.
Advice AdviseOnState(const ExaminedRun& run, const std::string& names,
                     uint64_t step, const DoctorAccount& account);

// "a copy that follows the model: a tensor of ...".
std::string DescribeUntracked(const UntrackedItem& item);

// What the account of a program gives away that differs: state that is not
// tracked, a `break`; else empty.
std::string SuspectByAccount(const DoctorAccount& account);

// State that is lost for certain.
Advice AdviseOnUntracked(const UntrackedItem& item);

// Nothing differs, but no epoch ended, or none after the restart.
Advice AdviseOnEpochs(const DoctorAccount& alone, const DoctorAccount& resumed,
                      uint64_t steps);

// Its own end was not reached, and nothing is tracked that could count epochs.
Advice AdviseOnUncountedEpochs(const DoctorAccount& account);

// A program that was started again from step `from` comes to another end.
Advice AdviseOnEnds(uint64_t from, uint64_t expected, uint64_t found);

// Two undisturbed runs differ already. `what`: and how.
Advice AdviseOnRandomness(const std::string& what);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ADVICE_H_
