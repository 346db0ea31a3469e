// The part of a case that only some policies use: costs, entities, what runs
// now, times and deadlines, in the form of policy_case.h. Called by
// policy_case.cc. Pure, thread-safe.
#ifndef GAVEL_STUDY_SOLVE_POLICY_CASE_EXTRAS_H_
#define GAVEL_STUDY_SOLVE_POLICY_CASE_EXTRAS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/json_fields.h"
#include "coordinator/policy/policy.h"

namespace gavel::study {

// The jobs of a file: indices into PolicyProblem::jobs.
struct CaseJobs {
  std::map<int64_t, size_t> by_id;
  std::vector<size_t> in_order;  // of the file

  absl::StatusOr<size_t> At(std::string_view id) const;
  // Of "A,B"; "A,A" only with `alike`.
  absl::StatusOr<std::pair<size_t, size_t>> PairAt(std::string_view key,
                                                   bool alike = false) const;
};

// A field of a case that may be left out: null. INVALID_ARGUMENT: no object.
// `form`: what to give.
absl::StatusOr<const ParsedJson*> OptionalTable(const ParsedJson& case_json,
                                                const std::string& key,
                                                std::string_view form);

// Fills in `problem`, whose types and jobs are there. `case_json`: an object.
absl::Status ParseCaseExtras(const ParsedJson& case_json, const CaseJobs& jobs,
                             PolicyProblem* problem);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SOLVE_POLICY_CASE_EXTRAS_H_
