// Job arrays and sweeps: one job file that stands for several jobs, its
// elements, which differ by an index or by values. The client (to check and
// count), the server and the engine call it. Pure, thread-safe.
//
// The elements follow from the spec alone: `array` names their indices; those
// of a sweep count from 0, and the last parameter changes fastest.
#ifndef GAVEL_COORDINATOR_WORKLOAD_JOB_ARRAY_H_
#define GAVEL_COORDINATOR_WORKLOAD_JOB_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/job_spec.h"

namespace gavel {

inline constexpr size_t kElementsMax = 10'000;
inline constexpr int kElementIndexMax = 999'999;
// The programs and variables of all elements of one array, together.
inline constexpr size_t kArrayBytesMax = size_t{64} << 20;

// Before the name of a sweep's parameter in capitals: an element's variable of
// its value.
inline constexpr std::string_view kSweepPrefix = "GAVEL_SWEEP_";

// The indices of "0-9,20,30-40:5", ascending. INVALID_ARGUMENT, naming the part
// that is wrong: none, one twice, a range that falls, more than kElementsMax,
// or an index beyond kElementIndexMax.
absl::StatusOr<std::vector<int>> ParseIndices(std::string_view text);
// The shortest such text of indices that ascend.
std::string FormatIndices(std::span<const int> indices);

struct ArrayText {
  std::vector<int> indices;
  int at_once = 0;  // 0: no limit
};
// "0-99%10": the indices, of which at most 10 run at once. INVALID_ARGUMENT as
// above.
absl::StatusOr<ArrayText> ParseArray(std::string_view text);

// Whether the spec stands for several jobs.
inline bool HasElements(const JobSpec& spec) {
  return !spec.array.empty() || !spec.sweep.empty();
}
// Their indices, ascending. None: the spec is that of one job, or one that
// ParseJobSpec refuses.
std::vector<int> IndicesOf(const JobSpec& spec);
// How many of them may run at once; 0: no limit.
int AtOnceOf(const JobSpec& spec);

// The spec of one element: "NAME_INDEX", with a checkpoint directory, arguments
// and variables of its own. It belongs to the app and the workload of the
// array's name, unless the file names others. It names the elements of
// after_by_index in after_success. The spec has passed CheckArray.
JobSpec ElementSpec(const JobSpec& spec, int index);
// The name, the checkpoint directory and the owner of one element alone.
JobSpec ElementIdentity(const JobSpec& spec, int index);

// "42_7" as 42 and 7; nullopt: the text has another form.
struct ElementId {
  uint64_t array = 0;
  int index = 0;
};
std::optional<ElementId> ParseElementId(std::string_view text);
// "lm" for the name "lm_7" of an element.
std::string_view ArrayNameOf(std::string_view element_name);

// INVALID_ARGUMENT: `array` or `sweep` is wrong, an element would have a name
// or a program that no job may have, or all of them are too large together.
// `*key` is then the key with the mistake, as JobSetting has it: "array",
// "sweep.lr".
absl::Status CheckArray(const JobSpec& spec, std::string* key);

// True for [A-Za-z_][A-Za-z0-9_]{0,63}.
bool IsIdentifier(std::string_view name);
// `text` with each {NAME} replaced by what `value_of` returns for it. ${NAME}
// and braces around anything else stay, and {{NAME}} becomes {NAME}. The first
// error of `value_of`, if any.
absl::StatusOr<std::string> FillBraces(
    std::string_view text,
    const std::function<absl::StatusOr<std::string>(std::string_view name)>&
        value_of);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_JOB_ARRAY_H_
