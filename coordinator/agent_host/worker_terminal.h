// The terminal of an interactive job, between the process and the attached
// client. A request of the client gives credit for one answer, so a slow client
// holds up the program, and not the agent. Without a client output
// goes on, and its end is kept for the next one.
//
// Used by the thread of WorkerOutputs. `now` is of one clock, and never falls;
// `terminal` is the non-blocking descriptor of the agent's end.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_WORKER_TERMINAL_H_
#define GAVEL_COORDINATOR_AGENT_HOST_WORKER_TERMINAL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/messages.h"
#include "core/units.h"

namespace gavel {

class WorkerTerminal {
 public:
  // Output that a client has not read: beyond, the program has to wait.
  static constexpr size_t kUnreadBytesMax = 32 * 1024;
  // Output that is kept, with a client and without one.
  static constexpr size_t kKeptBytesMax = 128 * 1024;
  static constexpr size_t kKeptAloneBytesMax = 16 * 1024;
  // A request is answered after this long, output or not.
  static constexpr double kAnswer_s = 1;
  // A client that has not asked for this long is gone.
  static constexpr double kClientGone_s = 5;
  static constexpr double kActiveInterval_s = 5;
  // The first client comes within this time, or there is none.
  static constexpr double kFirstClient_s = 5;

  // The process starts at `now`.
  WorkerTerminal(const WorkerKey& worker, Time now)
      : worker_(worker), began_at_(now) {}

  // False: the client is behind, or is yet to come, so the program has to wait.
  bool MayRead(Time now) const;
  // The program has written this.
  void Add(Time now, std::string_view output);
  // Shows a line of the coordinator's.
  void Tell(std::string_view text);
  // The process is gone, and all that it wrote was added.
  void End() { ended_ = true; }

  // Takes a request, and writes its input. The answers are to this or an
  // earlier one; that to this one may come later, through Answer.
  std::vector<TerminalReply> Ask(Time now, int terminal,
                                 TerminalRequest request);
  std::optional<TerminalReply> Answer(Time now);
  // Writes input that did not fit before. False: some is left.
  bool WriteInput(int terminal);

  // It was used since the last call that returned true, which was at least
  // kActiveInterval_s ago.
  bool TakeActive(Time now);
  // When Answer or TakeActive has something without a further event.
  Time NextDeadline() const;

 private:
  // There is one, or one may still come for the beginning of the output.
  bool HasClient(Time now) const {
    return client_ != 0 ? now < asked_at_ + kClientGone_s
                        : now < began_at_ + kFirstClient_s;
  }
  uint64_t end() const { return begin_ + kept_.size(); }
  void SetWindow(int terminal, int rows, int columns);
  TerminalReply ReplyTo(const TerminalRequest& request) const;

  const WorkerKey worker_;
  const Time began_at_;
  std::string kept_;
  uint64_t begin_ = 0;  // bytes of output before `kept_`
  uint64_t read_ = 0;   // bytes that the client has
  std::string input_;   // that the terminal has yet to take
  uint64_t input_end_ = 0;
  uint64_t client_ = 0;  // 0: none yet
  Time asked_at_ = 0;    // by the client
  std::optional<TerminalRequest> waiting_;
  int rows_ = 0, columns_ = 0;
  bool used_ = false;
  Time told_active_at_ = -kNever;
  bool ended_ = false;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_WORKER_TERMINAL_H_
