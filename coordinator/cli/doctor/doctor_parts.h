// The parts of an examination, in their order. Internal to
// doctor_examination.cc and doctor_restart.cc, which has the runs that are
// killed and started again. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_PARTS_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/doctor/doctor_advice.h"
#include "coordinator/cli/doctor/doctor_examination.h"

namespace gavel {

// The first few, and how many more.
std::string FirstNames(const std::vector<std::string>& names);

class DoctorExamination {
 public:
  DoctorExamination(const DoctorProgram& program,
                    const ExaminationOptions& options)
      : program_(program), options_(options), steps_(options.steps) {
    if (options.own_steps > 0) steps_ = std::min(steps_, options.own_steps);
  }

  absl::StatusOr<Examined> Run();

 private:
  using Part = absl::Status (DoctorExamination::*)();

  // `checkpoints` empty: NAME.checkpoints.
  absl::StatusOr<DoctorRun> RunOnce(DoctorRunOptions options);
  absl::Status RunAlone();
  uint64_t MoreSteps() const;
  void SayAccount() const;
  absl::Status Pause() { return RunLeased("paused", program_.device); }
  absl::Status Move() { return RunLeased("moved", options_.move_to); }
  absl::Status RunLeased(const char* name, const std::string& second_device);
  double SlowDownFactor(int attempt) const;
  void JudgeLeased(const char* name, const DoctorRun& run, bool at_full_speed);
  uint64_t OwnSteps() const;
  absl::Status RunToOwnEnd();
  absl::Status RestoreAtEach();
  std::vector<uint64_t> StepsToRestoreAt() const;
  // Its files are PREFIX.ATTEMPT; sets interrupted_ and checkpoints_.
  absl::Status Interrupt(uint64_t step, const std::string& prefix);
  absl::Status StopByBudget(uint64_t step, const std::string& prefix);
  absl::Status Resume();
  absl::Status Explain();
  absl::StatusOr<std::string> SuspectByState(uint64_t from);

  // These fill advice_ and return true when something is wrong.
  bool EndedBadly(const DoctorRun& run, const char* what);
  bool HasBadCheckpoint(const DoctorRun& run);
  bool WentOnWrongly(const ExaminedRun& examined);
  void JudgeAccount();

  // Restored runs are compared with it.
  const DoctorRun& reference() const { return own_end_ ? whole_ : alone_; }
  void TakeUntracked(const DoctorAccount& account);
  ExaminedRun& Compare(const char* name, const DoctorRun& expected,
                       const DoctorRun& run, uint64_t from);
  std::vector<std::string> StateDifferences(const DoctorRun& expected,
                                            const DoctorRun& run) const;
  void Measure();
  void Say(const char* what, const std::string& text) const {
    if (options_.say) options_.say(what, text);
  }
  std::string ResultOf(const ExaminedRun& run) const;

  const DoctorProgram& program_;
  const ExaminationOptions& options_;
  uint64_t steps_;
  DoctorRun alone_;
  DoctorRun whole_;       // run to its own end
  bool own_end_ = false;  // which was reached
  DoctorRun interrupted_;
  DoctorRun resumed_;
  std::string checkpoints_;           // of the two
  bool ended_after_restart_ = false;  // a loop, in a run that was restored
  Advice advice_;                     // empty: nothing is wrong yet
  std::vector<Advice> unseen_;        // what could not be examined
  std::vector<double> save_times_s_;
  Examined found_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_PARTS_H_
