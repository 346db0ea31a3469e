// The files of the dashboard's pages, which are compiled into the program.
#ifndef GAVEL_COORDINATOR_HTTP_PAGES_H_
#define GAVEL_COORDINATOR_HTTP_PAGES_H_

#include <span>
#include <string_view>

namespace gavel {

struct Page {
  std::string_view name;  // "app.js"
  std::string_view bytes;
};

// The files of coordinator/http/pages, and "chart.umd.js".
std::span<const Page> CompiledPages();

// "text/html; charset=utf-8", by the ending of the name.
std::string_view MediaTypeOf(std::string_view name);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_PAGES_H_
