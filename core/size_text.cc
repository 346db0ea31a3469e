#include "core/size_text.h"

#include "absl/strings/str_format.h"

namespace gavel {

std::string SizeText(uint64_t bytes) {
  constexpr double kStep = 1024;
  const char* unit = "KiB";
  double size = static_cast<double>(bytes) / kStep;
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (size < kStep) break;
    size /= kStep;
    unit = larger;
  }
  return absl::StrFormat("%.1f %s", size, unit);
}

}  // namespace gavel
