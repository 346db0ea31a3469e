// Runs that no simulation made, with figures that look like one's: for tests of
// the results database and of reports. Deterministic.
#ifndef GAVEL_TESTS_STUDY_SAMPLE_RUNS_H_
#define GAVEL_TESTS_STUDY_SAMPLE_RUNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "study/simulation_store.h"

namespace gavel::testing {

// A finished run of 300 jobs on v100:4,p100:4,k80:4, with usage.
study::StoredRun SampleRun(const std::string& policy, double rate_per_h,
                           uint64_t seed);
// All jobs at time 0.
study::StoredRun SampleStaticRun(const std::string& policy, uint64_t jobs,
                                 uint64_t seed);
// Its rounds are recorded.
study::StoredRun SampleRunWithRounds(const std::string& policy);

// Three policies, four rates, two seeds (one of the policies does not drain at
// the highest rate), three numbers of jobs at once, and one with rounds.
std::vector<study::StoredRun> SampleSweep();

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_STUDY_SAMPLE_RUNS_H_
