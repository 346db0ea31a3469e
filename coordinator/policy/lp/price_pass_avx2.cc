// The pass of price_pass.h with 4 jobs at once.
#include "coordinator/policy/lp/price_pass.h"

#ifdef __AVX2__
#define GAVEL_PASS_WIDTH 4
#include "coordinator/policy/lp/price_pass_body.h"
#include "coordinator/policy/lp/price_split_body.h"

namespace gavel::price_pass {

Functions Avx2() { return {&Sum, &Share, &Split}; }

}  // namespace gavel::price_pass
#else
namespace gavel::price_pass {

Functions Avx2() { return {}; }

}  // namespace gavel::price_pass
#endif
