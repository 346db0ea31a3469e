// The parts of the hash of tensor_hash.h, for the host and for a GPU. Each word
// of eight bytes gives a term. The sum of the terms modulo 2^64 does not depend
// on their order, so any number of threads can add them up.
//
// Pure functions, based on S. Vigna's SplitMix64: its finalizer mixes a word,
// and its sequence from seed 0 gives each position of a word a key of its own.
#ifndef GAVEL_RUNTIME_DEVICE_TENSOR_HASH_WORDS_H_
#define GAVEL_RUNTIME_DEVICE_TENSOR_HASH_WORDS_H_

#include <cstdint>

#ifdef __CUDACC__
#define GAVEL_HOST_DEVICE __host__ __device__
#else
#define GAVEL_HOST_DEVICE
#endif

namespace gavel::internal {

GAVEL_HOST_DEVICE inline uint64_t MixWord(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

GAVEL_HOST_DEVICE inline uint64_t KeyOfPlace(uint64_t index) {
  return MixWord((index + 1) * 0x9e3779b97f4a7c15u);
}

GAVEL_HOST_DEVICE inline uint64_t TermOfWord(uint64_t word, uint64_t index) {
  return MixWord(word ^ KeyOfPlace(index));
}

// Returns the hash of `size_bytes` bytes. `sum` is the sum of the terms of
// their words.
GAVEL_HOST_DEVICE inline uint64_t HashOfSum(uint64_t sum, uint64_t size_bytes) {
  return TermOfWord(sum, size_bytes);
}

}  // namespace gavel::internal

#endif  // GAVEL_RUNTIME_DEVICE_TENSOR_HASH_WORDS_H_
