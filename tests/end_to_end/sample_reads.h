// Which samples a job of tests/iterator/gang_worker.cc read for which step, by
// its READ_FILE: none may be lost or read twice, however often it was resized.
#ifndef GAVEL_TESTS_END_TO_END_SAMPLE_READS_H_
#define GAVEL_TESTS_END_TO_END_SAMPLE_READS_H_

#include <sys/types.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {

// A sample that a process read for a step.
struct Read {
  pid_t process = 0;
  int sample = 0;
};
// Reads by step, in the order of reading.
using Reads = std::map<int, std::vector<Read>>;

inline Reads ReadsOf(const std::string& path) {
  Reads reads;
  std::ifstream in(path);
  int step = 0;
  for (Read read; in >> step >> read.process >> read.sample;) {
    reads[step].push_back(read);
  }
  return reads;
}

// A step is void if its gang broke, as on a machine that is too busy. Other
// processes then read its samples again, and the last time counts. So no
// process reads twice for a step, and the reads that count are those of one
// worker alone for that step.
inline void ExpectSameReads(const Reads& reads, const Reads& alone) {
  ASSERT_EQ(reads.size(), alone.size());
  for (const auto& [step, expected] : alone) {
    SCOPED_TRACE(StrCat("step ", step));
    ASSERT_TRUE(reads.contains(step));
    const std::vector<Read>& all = reads.at(step);
    ASSERT_GE(all.size(), expected.size());
    const auto counts =
        all.end() - static_cast<std::ptrdiff_t>(expected.size());
    std::multiset<int> want, got;
    std::set<pid_t> processes;
    for (const Read& read : expected) want.insert(read.sample);
    for (auto read = counts; read != all.end(); ++read) {
      got.insert(read->sample);
      processes.insert(read->process);
    }
    EXPECT_EQ(got, want);
    for (auto read = all.begin(); read != counts; ++read) {
      EXPECT_FALSE(processes.contains(read->process))
          << "process " << read->process << " read sample " << read->sample
          << " once too often";
    }
  }
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_END_TO_END_SAMPLE_READS_H_
