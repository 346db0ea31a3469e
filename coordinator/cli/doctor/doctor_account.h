// The account that the runtime gives of a run (GAVEL_EXAMINATION_FILE; its
// format is in iterator/examination.h): what is tracked, where epochs end and
// evaluations are, and what is used and not tracked. `gavel doctor` calls it.
// Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ACCOUNT_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ACCOUNT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gavel {

struct UntrackedItem {
  uint64_t step = 0;  // when it was noticed
  std::string kind;   // "module", "average", "tensor", "schedule", "generator"
  std::string text;
};

struct DoctorAccount {
  std::vector<std::string> tracked;  // "model (module)"
  uint64_t loops_begun = 0;
  std::vector<uint64_t> epoch_ends;  // steps done by then, ascending
  std::vector<uint64_t> breaks;      // loops left by `break`
  std::vector<uint64_t> evaluations;
  std::vector<UntrackedItem> untracked;

  // Of a runtime that gives none.
  bool empty() const { return tracked.empty() && loops_begun == 0; }
  // By its range's end or by `break`, ascending.
  std::vector<uint64_t> LoopEnds() const;
  // Something is tracked that may count epochs: a number, text or bytes.
  bool CountsSomething() const;
  // It loses state for certain: null if nothing does.
  const UntrackedItem* Lost() const;
};

// Leaves out lines of other kinds, and a last one that was cut off.
DoctorAccount ParseAccount(std::string_view text);

// How many steps an examination should have, so that a program that is killed
// in the middle has an epoch's end behind it and one before it; more than
// `steps` when none was seen in these. 0: they are enough.
uint64_t StepsForEpochs(const DoctorAccount& account, uint64_t steps);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_ACCOUNT_H_
