#include "coordinator/workload/python_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <iterator>

namespace gavel {
namespace {

constexpr size_t kStateWords = std::mt19937::state_size;
constexpr size_t kWordBits = 32;

// The first state of the generator as init_genrand() and init_by_array() of its
// authors make it (Matsumoto and Nishimura 2002), which is how CPython seeds:
// std::mt19937 takes the words of generate() as its state.
class InitByArray {
 public:
  using result_type = uint32_t;

  explicit InitByArray(uint64_t seed)
      : key_{static_cast<uint32_t>(seed),
             static_cast<uint32_t>(seed >> kWordBits)},
        key_size_(key_[1] == 0 ? 1 : 2) {}

  template <class Iterator>
  void generate(Iterator begin, [[maybe_unused]] Iterator end) const {
    assert(std::distance(begin, end) == kStateWords);
    const std::array<uint32_t, kStateWords> state = State();
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  // One step of the recurrences: word `i` mixed with the one before it.
  static uint32_t Mixed(const std::array<uint32_t, kStateWords>& state,
                        size_t i, uint32_t factor) {
    const uint32_t before = state[i - 1];
    return state[i] ^ ((before ^ (before >> 30)) * factor);
  }

  // Word 0 is the last one's copy when the walk comes round.
  static void Advance(std::array<uint32_t, kStateWords>& state, size_t& i) {
    if (++i < kStateWords) return;
    state[0] = state[kStateWords - 1];
    i = 1;
  }

  std::array<uint32_t, kStateWords> State() const {
    std::array<uint32_t, kStateWords> state{19650218};
    for (uint32_t i = 1; i < kStateWords; ++i) {
      state[i] = (state[i - 1] ^ (state[i - 1] >> 30)) * 1812433253 + i;
    }
    size_t i = 1;
    uint32_t j = 0;
    for (size_t k = 0; k < kStateWords; ++k) {
      state[i] = Mixed(state, i, 1664525) + key_[j] + j;
      j = (j + 1) % key_size_;
      Advance(state, i);
    }
    for (size_t k = 1; k < kStateWords; ++k) {
      state[i] = Mixed(state, i, 1566083941) - static_cast<uint32_t>(i);
      Advance(state, i);
    }
    state[0] = 0x80000000;
    return state;
  }

  std::array<uint32_t, 2> key_;
  uint32_t key_size_;
};

std::mt19937 SeededEngine(uint64_t seed) {
  InitByArray words(seed);
  return std::mt19937(words);
}

// getrandbits(): whole words from the lowest on, then the high bits of one.
uint64_t RandomBits(std::mt19937& engine, size_t count) {
  uint64_t bits = 0;
  for (size_t done = 0; done < count; done += kWordBits) {
    const size_t wanted = std::min(count - done, kWordBits);
    const uint64_t word = engine() >> (kWordBits - wanted);
    bits |= word << done;
  }
  return bits;
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : engine_(SeededEngine(seed)) {}

double PythonRandom::Random() {
  const auto high = static_cast<double>(engine_() >> 5);  // 27 bits
  const auto low = static_cast<double>(engine_() >> 6);   // 26 bits
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double PythonRandom::Uniform(double a, double b) {
  return a + (b - a) * Random();
}

size_t PythonRandom::Below(size_t size) {
  assert(size > 0);
  const auto bits = static_cast<size_t>(std::bit_width(size));
  uint64_t drawn = RandomBits(engine_, bits);
  while (drawn >= size) drawn = RandomBits(engine_, bits);
  return drawn;
}

}  // namespace gavel
