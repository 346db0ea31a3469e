// The median of figures. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_THROUGHPUT_MEDIAN_H_
#define GAVEL_COORDINATOR_THROUGHPUT_MEDIAN_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <vector>

namespace gavel {

// Of at least one value; the mean of the middle two of an even number.
inline double Median(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_THROUGHPUT_MEDIAN_H_
