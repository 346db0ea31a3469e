// What `gavel doctor` prints of an examination: lines for a person, or JSON
// for a machine. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_OUTPUT_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_OUTPUT_H_

#include <string>

#include "coordinator/cli/doctor/doctor_examination.h"

namespace gavel {

// "  paused     after step 10, ...\n"
std::string RenderDoctorLine(const std::string& what, const std::string& text);

// What checkpoints, pauses and steps cost; empty when nothing was measured.
std::string RenderCosts(const DoctorMeasures& measures);

// "PASS: ..." or "FAIL: ..." with the remedy. `kept`: the folder of a failure.
std::string RenderVerdict(const Examined& examined, const std::string& program,
                          const std::string& kept);

// One object; times in seconds, null where not measured.
std::string RenderDoctorJson(const Examined& examined,
                             const std::string& program,
                             const std::string& kept);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_OUTPUT_H_
