// The accelerator type that whoever knows no types reckons with: Gavel's job
// durations are those on a V100.
#ifndef GAVEL_CORE_REFERENCE_TYPE_H_
#define GAVEL_CORE_REFERENCE_TYPE_H_

#include <string_view>

namespace gavel {

inline constexpr std::string_view kReferenceType = "v100";

}  // namespace gavel

#endif  // GAVEL_CORE_REFERENCE_TYPE_H_
