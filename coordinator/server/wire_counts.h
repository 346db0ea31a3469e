// What a coordinator has kept out (WireCounts), for the log when it grows.
// Values.
#ifndef GAVEL_COORDINATOR_SERVER_WIRE_COUNTS_H_
#define GAVEL_COORDINATOR_SERVER_WIRE_COUNTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/server/query/rows.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/transport/router.h"

namespace gavel {

inline WireCounts CountsOf(const Router& router, uint64_t messages_refused) {
  return {router.frames_dropped(), messages_refused,
          router.connections_refused(), router.connections_cut(),
          router.handshakes_failed()};
}

// The log's line, at most once a minute.
class WireReport {
 public:
  static constexpr double kInterval_s = 60;
  // Fewer new ones are no reason for a line: checks of whether the port is open
  // break their handshakes off.
  static constexpr uint64_t kHandshakesToTell = 100;

  std::optional<std::string> Next(Time now, const WireCounts& counts) {
    if (now < next_at_ || !IsNews(counts)) return std::nullopt;
    next_at_ = now + kInterval_s;
    const auto part = [](uint64_t all, uint64_t before) {
      return StrCat(all, " (", all - before, " new)");
    };
    const std::string line =
        StrCat("kept out so far: frames dropped ",
               part(counts.frames_dropped, told_.frames_dropped),
               ", messages refused ",
               part(counts.messages_refused, told_.messages_refused),
               ", connections refused ",
               part(counts.connections_refused, told_.connections_refused),
               ", connections cut ",
               part(counts.connections_cut, told_.connections_cut),
               ", handshakes failed ",
               part(counts.handshakes_failed, told_.handshakes_failed),
               "; `gavel audit` tells whose messages were refused");
    told_ = counts;
    return line;
  }

 private:
  bool IsNews(WireCounts counts) const {
    const uint64_t failed = counts.handshakes_failed - told_.handshakes_failed;
    if (failed >= kHandshakesToTell) return true;
    counts.handshakes_failed = told_.handshakes_failed;
    return counts != told_;
  }

  WireCounts told_;
  Time next_at_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_WIRE_COUNTS_H_
