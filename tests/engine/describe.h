// Actions in words, one line each, for golden scenarios.
#ifndef GAVEL_TESTS_ENGINE_DESCRIBE_H_
#define GAVEL_TESTS_ENGINE_DESCRIBE_H_

#include <string>

#include "coordinator/engine/event.h"

namespace gavel {

// "grant job 1 rank 0 #1 epoch 2: here-0 (v100) for 60 s".
std::string Describe(const Action& action);

}  // namespace gavel

#endif  // GAVEL_TESTS_ENGINE_DESCRIBE_H_
