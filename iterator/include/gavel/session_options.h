// The options of a gavel::Session. Part of gavel/session.h.
#ifndef GAVEL_SESSION_OPTIONS_H_
#define GAVEL_SESSION_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "gavel/status.h"

namespace gavel {

enum class LogLevel { kInfo, kWarning, kError };

// Whether a checkpoint has the gradients of the parameters. They belong to the
// state where they add up over several steps.
enum class Gradients {
  kDetect,  // as it is seen of each optimizer; what is not known yet is saved
  kSaveAlways,
  kSaveNever,
};

// How the ranks of a gang without a coordinator find each other.
struct GangOptions {
  std::string store;            // "HOST:PORT" of the gang's TCPStore
  bool launcher_hosts = false;  // torchrun does; else rank 0
  std::string name;             // tells this gang from others in that store
  int local_rank = 0;           // of the workers on this machine: which GPU
};

struct SessionOptions {
  std::string coordinator;  // "HOST:PORT"; empty: alone
  std::string cluster;      // these six as the agent says
  std::string job_name;
  uint64_t job = 0;
  uint64_t incarnation = 0;
  int rank = 0;
  int world_size = 1;
  int world_size_min = 0;  // of an elastic job, whose number of workers the
  int world_size_max = 0;  // coordinator changes; 0: it is fixed
  std::string address;     // of this machine, for its gang; empty: by its name
  GangOptions gang;        // alone, with world_size > 1
  // How long ranks wait for each other's parts of a checkpoint that all have
  // begun, in seconds, > 0. Beginning is waited for while they are alive.
  double gang_wait_s = 60;
  std::string run_directory;         // accelerator locks; empty: none are taken
  std::string checkpoint_directory;  // empty: no checkpoints
  // 0: not by time. < 0: as often as is best by what a checkpoint costs here
  // and the mean time between failures of one worker (Young and Daly).
  double checkpoint_interval_s = -1;
  double failure_interval_s = 6 * 3600;
  int64_t checkpoint_interval_steps = 0;  // 0: not by steps
  int checkpoints_kept = 2;               // the newest; >= 2
  // Beside them: of each so many steps the first (0: none), and the best by
  // what Report() last told before it: "min:loss", "max:accuracy" (empty:
  // none).
  int64_t checkpoints_kept_every_steps = 0;
  std::string checkpoints_kept_best;
  Gradients gradients = Gradients::kDetect;
  // At a restart, tensors of the checkpoint without a place are left out, and
  // tracked ones that it lacks stay as the program made them, with a warning
  // each. Off: both are errors.
  bool partial_restore = false;
  // At a restart, an optimizer's options (such as lr) that the program gives
  // otherwise than it did when the checkpoint was written are the program's.
  // Off: the checkpoint's, with a warning.
  bool keep_program_options = false;
  int64_t steps_total = 0;  // of the job's whole life; 0: until the loop ends
  std::string device;       // alone: "cpu", "cuda:0"; empty: a GPU if there is
  // The most host memory that is kept pinned for checkpoints and pauses on
  // GPUs; 0: a quarter of what this process may use. Two copies of the state
  // fit at best; without, pauses beside the write of a checkpoint take longer.
  uint64_t pinned_memory_bytes = 0;
  std::string report_file;       // every Report() is appended to it as a line
  std::string examination_file;  // what `gavel doctor` reads; empty: none
  std::string trace_file;        // Chrome trace (gavel/profile.h); empty: none
  std::string tensorboard_directory;  // event files; empty: none
  // SIGTERM, SIGINT, SIGHUP: checkpoint and end at the next boundary. SIGUSR1,
  // SIGUSR2: checkpoint and continue. Only where the host left the default
  // handler; restored by Finish(). The first three count as one request however
  // often they come. Only one that comes pause_grace_s (>= 0) or more after the
  // first ends the process at once.
  bool handle_signals = true;
  double pause_grace_s = 60;
  // Off for a program that changes parameters without any torch optimizer.
  bool require_tracked_optimizer = true;
  // Off for a program that saves what its tracked optimizers train in another
  // way.
  bool require_tracked_parameters = true;
  // Alone in a terminal, without `log`: the last line on stderr shows steps,
  // speed, loss and the time left.
  bool progress_bar = true;
  // Called by one thread at a time, not always the training thread. Empty:
  // lines on stderr.
  std::function<void(LogLevel, const std::string&)> log;
};

// Overwrites what GAVEL_* variables are set (docs/iterator.md has all).
// kInvalidArgument names the variable that can't be read.
GAVEL_EXPORT Status ReadEnvironment(SessionOptions* options);

}  // namespace gavel

#endif  // GAVEL_SESSION_OPTIONS_H_
