// The files of this folder that browsers get, and Chart.js as "chart.umd.js".
// They are compiled into the program. Thread-safe.
#ifndef GAVEL_COORDINATOR_PAGES_PAGES_H_
#define GAVEL_COORDINATOR_PAGES_PAGES_H_

#include <span>
#include <string_view>

namespace gavel {

struct Page {
  std::string_view name;  // "app.js"
  std::string_view bytes;
};

// All of them. "report.js" is one script, with the modules that it imports.
std::span<const Page> CompiledPages();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_PAGES_PAGES_H_
