// Every rule that can be taken out, and what that allows. The simulation has to
// catch each within its budget of seeds.
#ifndef GAVEL_TESTS_SIMULATION_MUTANTS_H_
#define GAVEL_TESTS_SIMULATION_MUTANTS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/rules.h"

namespace gavel {

struct Mutant {
  Rule rule = Rule::kNone;
  std::string_view name;
  std::string_view allows;    // one sentence: what happens without the rule
  uint64_t seeds_max = 2000;  // one of the first so many catches it
};

std::span<const Mutant> Mutants();

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_MUTANTS_H_
