// Takes one rule out for as long as it lives (core/rules.h). The only class
// that can, and only here.
#ifndef GAVEL_TESTS_SIMULATION_RULE_REMOVER_H_
#define GAVEL_TESTS_SIMULATION_RULE_REMOVER_H_

#include "core/rules.h"

namespace gavel {

class RuleRemover {
 public:
  explicit RuleRemover(Rule rule) { Rules::removed_ = rule; }
  ~RuleRemover() { Rules::removed_ = Rule::kNone; }
  RuleRemover(const RuleRemover&) = delete;
  RuleRemover& operator=(const RuleRemover&) = delete;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_RULE_REMOVER_H_
