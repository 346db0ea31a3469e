#include "coordinator/policy/lp/price_pass.h"

#include <cassert>

namespace gavel {
namespace {

price_pass::Functions FunctionsOf(PassVersion version) {
  switch (version) {
    case PassVersion::kAvx512:
      return price_pass::Avx512();
    case PassVersion::kAvx2:
      return price_pass::Avx2();
    case PassVersion::kScalar:
      break;
  }
  return price_pass::Scalar();
}

bool ProcessorHas(PassVersion version) {
#if defined(__x86_64__)
  if (version == PassVersion::kAvx512) return __builtin_cpu_supports("avx512f");
  if (version == PassVersion::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return version == PassVersion::kScalar;
}

}  // namespace

bool Supported(PassVersion version) {
  return ProcessorHas(version) && FunctionsOf(version).sum != nullptr;
}

PassVersion FastestVersion() {
  for (const PassVersion version : {PassVersion::kAvx512, PassVersion::kAvx2}) {
    if (Supported(version)) return version;
  }
  return PassVersion::kScalar;
}

PriceSums SumPass(const PricePass& pass, double level,
                  std::span<const double> prices, PassVersion version) {
  assert(prices.size() == pass.types && pass.types <= kPriceTypesMax);
  PriceSums sums;
  FunctionsOf(version).sum(pass, level, prices.data(), &sums);
  return sums;
}

void AddShares(const PricePass& pass, std::span<const PricePoint> points,
               std::span<double> shares, PassVersion version) {
  assert(shares.size() == pass.blocks * kPriceLanes * pass.types);
  FunctionsOf(version).share(pass, points.data(), points.size(), shares.data());
}

PriceSettled SplitPass(const PricePass& pass, const PriceBox& box,
                       std::vector<uint32_t>* open, PassVersion version) {
  PriceSettled settled;
  open->resize(pass.blocks * kPriceLanes);
  open->resize(FunctionsOf(version).split(pass, box, &settled, open->data()));
  return settled;
}

}  // namespace gavel
