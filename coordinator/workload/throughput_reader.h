// Reads Gavel's throughput file into the list of its figures. Internal to this
// folder: ThroughputTable is made from it.
#ifndef GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_READER_H_
#define GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_READER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel {

struct ThroughputFigures {
  struct Alone {
    size_t worker_type;
    size_t row;
    double steps_per_s;
  };
  struct Pair {
    size_t worker_type;
    size_t row;
    size_t other;
    std::pair<double, double> steps_per_s;
  };
  std::vector<std::string> worker_types;           // as written, unique
  std::vector<std::pair<std::string, int>> names;  // of rows, unique
  std::vector<Alone> alone;                        // (worker_type, row) unique
  std::vector<Pair> pairs;  // (worker_type, row, other) unique
};

// As ThroughputTable::Parse().
absl::StatusOr<ThroughputFigures> ReadThroughputs(std::string_view json,
                                                  std::string_view source);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_READER_H_
