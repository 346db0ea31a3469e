#include "coordinator/cli/sweep_screen.h"

#include <algorithm>
#include <cstdio>

#include "core/text.h"
#include "core/text_table.h"
#include "study/simulation_run.h"
#include "study/simulation_store.h"

namespace gavel {
namespace {

constexpr size_t kActiveShown = 8;

std::string ResultOf(const study::StoredRun& run) {
  std::string text =
      run.run.status == study::RunStatus::kOk
          ? StrCat("average JCT ", FormatHours(run.run.result.avg_jct_s),
                   ", makespan ", FormatHours(run.run.result.makespan_s))
          : StrCat(study::RunStatusName(run.run.status), ": ", run.run.detail);
  return StrCat(text, "  (", FormatDuration(run.run.wall_s), ")");
}

}  // namespace

void SweepScreen::ShowLines(const study::SweepProgress& progress) {
  for (const study::EndedRun& ended : progress.ended) {
    std::printf("[%zu/%zu] %s: %s\n", ++told_, progress.runs,
                ended.label.c_str(), ResultOf(ended.run).c_str());
  }
  std::fflush(stdout);
}

void SweepScreen::Show(const study::SweepProgress& progress) {
  if (!terminal_.is_terminal()) {
    if (!quiet_) ShowLines(progress);
    return;
  }
  std::string note = StrCat(progress.done, "/", progress.runs, " runs");
  if (progress.skipped > 0) {
    StrAppend(&note, ", ", progress.skipped, " known");
  }
  std::string text = RenderBar(label_, progress.fraction, clock_.elapsed_s(),
                               note, terminal_.width());
  const size_t shown = std::min(progress.active.size(), kActiveShown);
  for (size_t i = 0; i < shown; ++i) {
    StrAppend(&text,
              Cut(StrCat("  ", progress.active[i]), terminal_.width() - 1),
              "\n");
  }
  terminal_.Show(text);
}

void SweepScreen::Clear() {
  if (terminal_.is_terminal()) terminal_.Show("");
}

}  // namespace gavel
