// Python's random.Random, number for number: the Mersenne Twister seeded by an
// integer, random(), uniform() and choice(). Traces of the original Gavel come
// out identical by it. Deterministic. Not thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_PYTHON_RANDOM_H_
#define GAVEL_COORDINATOR_WORKLOAD_PYTHON_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <random>

namespace gavel {

class PythonRandom {
 public:
  // As random.Random(seed): init_by_array over the 32-bit digits of the seed.
  explicit PythonRandom(uint64_t seed);
  // In [0, 1), 53 bits.
  double Random();
  // a + (b - a) * Random().
  double Uniform(double a, double b);
  // An index below `size` >= 1, as choice() and randrange() draw it.
  size_t Below(size_t size);

 private:
  std::mt19937 engine_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_PYTHON_RANDOM_H_
