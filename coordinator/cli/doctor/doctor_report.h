// What a program reported (GAVEL_REPORT_FILE, docs/iterator.md), where two runs
// of it differ, and the account that the runtime gives of a run
// (GAVEL_EXAMINATION_FILE; its format is in iterator/examination.h): what is
// tracked, where epochs end and evaluations are, and what is used and not
// tracked. `gavel doctor` calls it. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_REPORT_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gavel {

struct ReportedValue {
  uint64_t step = 0;
  std::string name;
  std::string value;  // hexadecimal: equal text, equal to the bit
  friend bool operator==(const ReportedValue&, const ReportedValue&) = default;
};

// One value per line "STEP NAME VALUE", in the order of the file; names may
// have blanks. Leaves out a last line that was cut off, and what is no report.
std::vector<ReportedValue> ParseReport(std::string_view text);

// Sorted, each once.
std::vector<std::string> NamesOf(const std::vector<ReportedValue>& values);

// The first that is not a number: it equals nothing, whatever went wrong.
std::optional<ReportedValue> FirstNan(const std::vector<ReportedValue>& values);

// Some name has several values: else all runs agree, whatever they train.
bool AnyVaries(const std::vector<ReportedValue>& values);

struct ReportDifference {
  uint64_t step = 0;
  std::string name;
  std::optional<std::string> expected;  // nothing: not reported
  std::optional<std::string> found;
};

// The first difference of each name from `from_step` on, the earliest first; at
// one step the name that was reported first. A run that begins there may have
// reported more at its first step, before its loop: the last values count.
// Numbers differ when they do by more than `tolerance` times the larger one; 0:
// to the bit.
std::vector<ReportDifference> CompareReports(
    const std::vector<ReportedValue>& expected,
    const std::vector<ReportedValue>& found, uint64_t from_step,
    double tolerance = 0);

// "loss at step 12: 0.25 (0x1p-2) undisturbed, not reported in the other run".
std::string DescribeDifference(const ReportDifference& difference,
                               std::string_view other_run);

struct UntrackedItem {
  uint64_t step = 0;  // when it was noticed
  std::string kind;   // as of iterator/examination.h
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
  // The names under which objects of this kind ("module") are tracked.
  std::vector<std::string> TrackedAs(std::string_view kind) const;
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

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_REPORT_H_
