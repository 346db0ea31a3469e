// The options that `gavel simulate` and `gavel trace` share: which jobs to
// draw, and what of a trace's columns to leave out.
#ifndef GAVEL_STUDY_SIMULATION_DRAW_FLAGS_H_
#define GAVEL_STUDY_SIMULATION_DRAW_FLAGS_H_

#include <optional>
#include <string>

#include "coordinator/cli/command_options.h"
#include "coordinator/workload/trace.h"

namespace gavel::study {

// `Drawn`: GeneratorOptions, or SimulationSpec, which has fields of the same
// names. What it points to outlives the command.
template <class Drawn>
void AddDrawFlags(CLI::App& command, Drawn* drawn,
                  std::optional<double>* rate_per_h, bool* all_at_zero) {
  command.add_option("--rate", *rate_per_h, "mean arrivals")
      ->type_name("JOBS/H");
  command.add_flag("--static", *all_at_zero, "all jobs arrive at time 0");
  command.add_flag("--multi-gpu", drawn->multi_gpu,
                   "30 % of the jobs need 2, 4 or 8 accelerators");
  command.add_flag("--multi-priority", drawn->multi_priority,
                   "a fifth of the jobs has weight 5");
  command.add_flag("--slos", drawn->slos,
                   "deadlines of 1.2, 2 or 10 times the duration");
  command
      .add_option("--fixed-duration", drawn->fixed_duration_s,
                  "of every job on a v100, in place of a drawn one")
      ->type_name("SECONDS");
  AddOption(command, "--scale-factor-max", drawn->scale_factor_max, "",
            "larger jobs are dropped");
}

// `columns`: as ParseTrace takes them; outlives the command.
inline void AddIgnoreColumns(CLI::App& command, std::string* columns) {
  command
      .add_option_function<std::string>(
          "--ignore-columns",
          [columns](const std::string& names) {
            *columns = names.empty() ? kAllOtherColumns : names;
          },
          "leaves out these columns of a CSV, or without NAMES all that are "
          "not known")
      ->type_name("NAMES")
      ->expected(0, 1);
}

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_DRAW_FLAGS_H_
