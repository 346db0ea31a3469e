// The advice that `gavel doctor` gives on its findings: why a run was of no
// use, which state is the usual cause of a difference, and the remedies. Pure,
// except that it reads the output of a run; thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_

#include <cstdint>
#include <string>
#include <string_view>
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

// A run under leases was not paused, or did not continue.
Advice AdviseOnLease(const DoctorLeases& leases, const ExaminedRun& run);

// Names the suspect of a difference, besides its place.
struct Evidence {
  const DoctorAccount& account;  // what is not tracked, a `break`
  std::string state;             // DescribeLostState, or empty
  // Where it is the run's only difference, another name that is equal at its
  // step; else empty.
  std::string equal_name;
};

// Where the tracked state of a restored program left the undisturbed one's.
struct LostState {
  uint64_t from = 0;               // the checkpoint's step
  uint64_t step = 0;               // the first after which it differs
  std::vector<std::string> names;  // of what does
  // Steps after `from`, within those looked at, that updated the model.
  std::vector<uint64_t> updates;           // undisturbed
  std::vector<uint64_t> restored_updates;  // after the restart
  bool is_between_updates = false;         // the checkpoint's step made none
};

// Says which state was lost, judged by the entries that differ first.
std::string DescribeLostState(const LostState& lost);

// The part of the tracked state that an entry of a checkpoint belongs to: the
// name that it is tracked as, "the position in the data", "random generators".
std::string StateGroup(std::string_view entry);

// The suspect for the earliest of a run's differences: what the account says is
// not tracked, a `break`; else what the state shows; else the usual one.
Advice AdviseOnDifference(const ExaminedRun& run,
                          const ReportDifference& difference,
                          const Evidence& evidence);

// All that was reported is equal, and tracked state is not. `names`: of it.
Advice AdviseOnState(const ExaminedRun& run, const std::string& names,
                     uint64_t step, const Evidence& evidence);

// "a copy that follows the model: a tensor of ...".
std::string DescribeUntracked(const UntrackedItem& item);

// The suspect that the account of a program gives away: state that is not
// tracked, or a `break`; empty if there is none.
std::string SuspectByAccount(const DoctorAccount& account);

// State that is lost for certain.
Advice AdviseOnUntracked(const UntrackedItem& item);

// Nothing differs, but no epoch ended, or none after the restart.
Advice AdviseOnEpochs(const DoctorAccount& undisturbed,
                      bool ended_after_restart, uint64_t steps);

// Its own end was not reached in `waited_s`, so only `steps` were examined.
Advice AdviseOnOwnEnd(const DoctorAccount& account, uint64_t steps,
                      double waited_s);

// A program that was started again from step `from` comes to another end, and
// reports the same until then.
Advice AdviseOnEnds(uint64_t from, uint64_t expected, uint64_t found,
                    const DoctorAccount& account);

// Two undisturbed runs differ already. `what`: and how.
Advice AdviseOnRandomness(const std::string& what);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_ADVICE_H_
