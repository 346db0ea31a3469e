// How close to each other the accelerators of a gang are, and the names under
// which its throughputs are kept: Gavel's "v100" (on one server) and
// "v100_unconsolidated" (over several), and levels between and below them
// (Themis, NSDI'20, section 5). Pure functions, thread-safe.
#ifndef GAVEL_CORE_LOCALITY_H_
#define GAVEL_CORE_LOCALITY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gavel {

// From the tightest level to the widest one; each contains the one before it.
// kGroup: accelerators of one server that are joined (NVLink, a NUMA node).
enum class Locality : uint8_t { kGroup, kServer, kRack, kCluster };
inline constexpr size_t kLocalities = 4;
inline constexpr Locality kAllLocalities[kLocalities] = {
    Locality::kGroup, Locality::kServer, Locality::kRack, Locality::kCluster};

// "group", "server", "rack", "cluster".
std::string_view LocalityName(Locality level);
std::optional<Locality> FindLocality(std::string_view name);

// The name for throughputs of gangs on `type` at that level: "v100@group",
// "v100", "v100@rack", "v100_unconsolidated". Accelerator types have no '@'.
std::string TypeNameAt(std::string_view type, Locality level);

struct TypeAt {
  std::string_view type;
  Locality level = Locality::kServer;
};
// The reverse. nullopt: the name has an '@' without a type before it and one of
// "group" and "rack" behind it.
std::optional<TypeAt> SplitTypeName(std::string_view name);
// The remedy that errors about such names give.
inline constexpr std::string_view kTypeNameRemedy =
    "write TYPE@group, TYPE (on one server), TYPE@rack or TYPE_unconsolidated "
    "(beyond a rack)";

// The level whose throughput counts where that of `level` is not known; that of
// kServer is kServer.
constexpr Locality SubstituteFor(Locality level) {
  return level == Locality::kRack ? Locality::kCluster : Locality::kServer;
}

}  // namespace gavel

#endif  // GAVEL_CORE_LOCALITY_H_
