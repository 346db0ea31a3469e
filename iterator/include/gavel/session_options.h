// What a gavel::Session is made with. Part of gavel/session.h.
#ifndef GAVEL_SESSION_OPTIONS_H_
#define GAVEL_SESSION_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "gavel/status.h"

namespace gavel {

enum class LogLevel { kInfo, kWarning, kError };

// How the ranks of a gang without a coordinator find each other.
struct GangOptions {
  std::string store;            // "HOST:PORT" of the gang's TCPStore
  bool launcher_hosts = false;  // torchrun does; else rank 0
  std::string name;             // tells this gang from others in that store
  int local_rank = 0;           // of the workers on this machine: which GPU
};

struct SessionOptions {
  std::string coordinator;  // "HOST:PORT"; empty: alone
  uint64_t job = 0;         // these four as the agent says
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
  int64_t steps_total = 0;  // of the job's whole life; 0: until the loop ends
  std::string device;       // alone: "cpu", "cuda:0"; empty: a GPU if there is
  std::string report_file;  // every Report() is appended to it as a line
  std::string examination_file;  // what `gavel doctor` reads; empty: none
  std::string trace_file;        // Chrome trace (gavel/profile.h); empty: none
  std::string tensorboard_directory;  // event files; empty: none
  // SIGTERM, SIGINT: checkpoint and end at the next boundary. Only where the
  // host left the default handler; restored by Finish().
  bool handle_signals = true;
  // Off for a program that changes parameters without any torch optimizer.
  bool require_tracked_optimizer = true;
  // Called by one thread at a time, not always the training thread. Empty:
  // lines on stderr.
  std::function<void(LogLevel, const std::string&)> log;
};

// Overwrites what GAVEL_* variables are set (docs/iterator.md has all).
// kInvalidArgument names the variable that can't be read.
GAVEL_EXPORT Status ReadEnvironment(SessionOptions* options);

}  // namespace gavel

#endif  // GAVEL_SESSION_OPTIONS_H_
