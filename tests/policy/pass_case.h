// What tests of one pass over jobs at given prices go by.
#ifndef GAVEL_TESTS_POLICY_PASS_CASE_H_
#define GAVEL_TESTS_POLICY_PASS_CASE_H_

#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel::testing {

struct PassCase {
  PriceJobs jobs;
  PriceDemand demand;
  std::vector<double> gain;  // empty: the pass has no gains
  std::vector<double> worth;
  double level = 0;

  PricePass Pass() const {
    PricePass pass = PassOf(jobs, demand);
    if (!gain.empty()) {
      pass.gain = gain.data();
      pass.worth = worth.data();
    }
    return pass;
  }
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_PASS_CASE_H_
