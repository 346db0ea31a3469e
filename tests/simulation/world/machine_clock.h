// The monotonic clock of one machine, with any offset and a rate that is a
// little too fast or too slow. A value.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_MACHINE_CLOCK_H_
#define GAVEL_TESTS_SIMULATION_WORLD_MACHINE_CLOCK_H_

#include "core/units.h"

namespace gavel {

struct MachineClock {
  double rate = 1;  // its seconds in one second of the world
  Time offset = 0;  // what it shows at the world's 0

  Time Shows(Time world) const { return offset + rate * world; }
  // The world's time at which the clock shows `shown`, late by at most a
  // rounding error.
  Time When(Time shown) const {
    constexpr double kRounding_s = 1e-9;
    return is_exact() ? shown : (shown - offset) / rate + kRounding_s;
  }

 private:
  bool is_exact() const { return rate == 1 && offset == 0; }
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_MACHINE_CLOCK_H_
