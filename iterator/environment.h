// Environment variables into SessionOptions, and what makes options usable.
#ifndef GAVEL_ITERATOR_ENVIRONMENT_H_
#define GAVEL_ITERATOR_ENVIRONMENT_H_

#include "absl/status/status.h"
#include "gavel/session.h"

namespace gavel::internal {

// INVALID_ARGUMENT names the option, its variable and the remedy.
absl::Status CheckOptions(const SessionOptions& options);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_ENVIRONMENT_H_
