// What a program reported (GAVEL_REPORT_FILE, docs/iterator.md), and where
// two runs of it differ. `gavel doctor` calls it. Pure, thread-safe.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_REPORT_H_
