#include "iterator/session/process_exit.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "core/text.h"

namespace gavel::internal {

void ProcessExit::WatchForOutOfMemory() {
  training_thread_ = std::this_thread::get_id();
  uncaught_exception_.Install(
      [this](const std::string& what) { EndOutOfMemory(what); });
}

void ProcessExit::Evict(const std::string& why) {
  context_.log.Info(StrCat("leaving the process after step ",
                           context_.stats.steps_done(), ": ", why));
  state_.Unlock();
  saver_.Wait().IgnoreError();  // so that the last report has it
  context_.FinishProfile(state_.device());
  gang_.WaitForOthers();
  Exit(kExitEvicted, why);
}

// By the thread that ran out of memory.
void ProcessExit::EndOutOfMemory(const std::string& what) {
  const std::string why = StrCat("out of memory after step ",
                                 context_.stats.steps_done(), ": ", what);
  context_.log.Error(
      StrCat(why, "; the job goes on elsewhere, from its last generation"));
  if (std::this_thread::get_id() == training_thread_) {
    saver_.Wait().IgnoreError();  // so that the last report has it
  }
  Exit(kExitFailed, why);
}

void ProcessExit::Exit(int exit_code, const std::string& why) {
  link_.Finish({exit_code, why, context_.stats.Read()});
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace gavel::internal
