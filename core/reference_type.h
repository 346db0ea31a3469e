// The accelerator type assumed where types are not distinguished: by
// heterogeneity-agnostic policies, and for the durations of jobs in traces,
// which Gavel gives for a V100.
#ifndef GAVEL_CORE_REFERENCE_TYPE_H_
#define GAVEL_CORE_REFERENCE_TYPE_H_

#include <string_view>

namespace gavel {

inline constexpr std::string_view kReferenceType = "v100";

}  // namespace gavel

#endif  // GAVEL_CORE_REFERENCE_TYPE_H_
