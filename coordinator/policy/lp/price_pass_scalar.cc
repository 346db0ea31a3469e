// The pass of price_pass.h for any processor.
#define GAVEL_PASS_WIDTH 1
#include "coordinator/policy/lp/price_pass_body.h"
#include "coordinator/policy/lp/price_split_body.h"

namespace gavel::price_pass {

Functions Scalar() { return {&Sum, &Share, &Split}; }

}  // namespace gavel::price_pass
