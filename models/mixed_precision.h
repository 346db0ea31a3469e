// Mixed precision: while one of these lives, LibTorch computes matrix products
// on that kind of device in bfloat16, and what needs it in float32. Weights and
// gradients stay float32, and bfloat16 has their range, so that nothing is
// scaled. For forward passes; backward() follows by itself. This thread only.
#ifndef GAVEL_MODELS_MIXED_PRECISION_H_
#define GAVEL_MODELS_MIXED_PRECISION_H_

#include <ATen/autocast_mode.h>

namespace gavel::models {

class MixedPrecision {
 public:
  // enabled false: nothing changes.
  MixedPrecision(at::DeviceType device, bool enabled)
      : device_(device),
        enabled_before_(at::autocast::is_autocast_enabled(device)),
        type_before_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    if (!enabled) return;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
  }
  ~MixedPrecision() {
    // The weights' copies in bfloat16 are those of one step.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_before_);
    at::autocast::set_autocast_dtype(device_, type_before_);
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_before_;
  at::ScalarType type_before_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_MIXED_PRECISION_H_
