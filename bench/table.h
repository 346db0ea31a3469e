// The results of a benchmark: a table for people, and the same as JSON for
// machines (bench/README.md describes its form).
#ifndef GAVEL_BENCH_TABLE_H_
#define GAVEL_BENCH_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/program.h"

namespace gavel::bench {

struct Goal {
  enum class Of : uint8_t {
    kNothing,
    kRatioAtMost,  // value / peer's value
    kRatioAtLeast,
    kValueAtMost
  };
  Of of = Of::kNothing;
  double bound = 0;
};

inline Goal AtMost(double ratio) { return {Goal::Of::kRatioAtMost, ratio}; }
inline Goal AtLeast(double ratio) { return {Goal::Of::kRatioAtLeast, ratio}; }
inline Goal ValueAtMost(double value) {
  return {Goal::Of::kValueAtMost, value};
}

struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  std::string peer = "";  // empty: none
  double peer_value = 0;
  Goal goal = {};

  // Returns 0 without a peer.
  double ratio() const;
  // Returns true without a goal. A value below 0 could not be measured, and
  // meets no goal.
  bool met() const;
};

void Print(const std::vector<Row>& rows);
// Prints one row as soon as it is known, because a table may take minutes and
// its program may be stopped before the end.
void PrintNow(const Row& row);
// Prints the row as PrintNow() does, and appends it to `rows`.
void Add(std::vector<Row>* rows, Row row);

// Prints `rows`, writes them to `out` unless it is empty, and returns the exit
// code: 0 if all goals are met, 1 if not, 2 if `out` can't be written.
int Report(const std::vector<Row>& rows, const std::string& out);

// The folder of the recorded runs of the original Gavel, which the tests use,
// too; empty if there was none when this was built.
std::string ReferenceFolder();

// Returns the file of `--out FILE.json`; empty without it. Any other argument
// ends the program with a usage message.
std::string OutFile(int argc, char** argv);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_TABLE_H_
