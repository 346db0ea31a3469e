#include "coordinator/agent_host/worker_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/text.h"

namespace gavel {
namespace {

constexpr int kWindowMax = 10'000;

}  // namespace

bool WorkerTerminal::MayRead(Time now) const {
  return !HasClient(now) || end() - std::max(read_, begin_) < kUnreadBytesMax;
}

void WorkerTerminal::Add(Time now, std::string_view output) {
  used_ |= !output.empty();
  kept_ += output;
  const size_t most = HasClient(now) ? kKeptBytesMax : kKeptAloneBytesMax;
  if (kept_.size() <= most) return;
  begin_ += kept_.size() - most;
  kept_.erase(0, kept_.size() - most);
}

void WorkerTerminal::Tell(std::string_view text) {
  StrAppend(&kept_, "\r\n[gavel: ", text, "]\r\n");
}

std::vector<TerminalReply> WorkerTerminal::Ask(Time now, int terminal,
                                               TerminalRequest request) {
  std::vector<TerminalReply> replies;
  const bool is_other = request.client != client_;
  const auto refuse = [&](const TerminalRequest& refused) {
    replies.push_back(ReplyTo(refused));
    replies.back().error =
        "another client has attached to the terminal; `gavel shell --attach` "
        "takes it back";
    replies.back().refused = true;
  };
  if (is_other && !request.attach) {
    refuse(request);
    return replies;
  }
  if (waiting_.has_value()) {
    is_other ? refuse(*waiting_) : replies.push_back(ReplyTo(*waiting_));
  }
  client_ = request.client;
  asked_at_ = now;
  read_ = request.offset;
  SetWindow(terminal, request.rows, request.columns);
  // Input that was sent twice, or does not fit, is left out.
  const uint64_t known =
      input_end_ - std::min(input_end_, request.input_offset);
  if (request.input_offset <= input_end_ && known < request.input.size()) {
    const size_t room =
        kTerminalBytesMax - std::min(kTerminalBytesMax, input_.size());
    const std::string more = request.input.substr(known, room);
    input_ += more;
    input_end_ += more.size();
    used_ |= !more.empty();
  }
  WriteInput(terminal);
  request.input.clear();
  waiting_ = std::move(request);
  return replies;
}

std::optional<TerminalReply> WorkerTerminal::Answer(Time now) {
  if (!waiting_.has_value()) return std::nullopt;
  const bool has_output = end() > std::max(waiting_->offset, begin_);
  if (!has_output && !ended_ && now < asked_at_ + kAnswer_s) {
    return std::nullopt;
  }
  TerminalReply reply = ReplyTo(*waiting_);
  waiting_.reset();
  reply.offset = std::clamp(reply.offset, begin_, end());
  reply.output = kept_.substr(reply.offset - begin_, kTerminalBytesMax);
  reply.ended = ended_ && reply.offset + reply.output.size() == end();
  return reply;
}

bool WorkerTerminal::WriteInput(int terminal) {
  while (!input_.empty()) {
    const ssize_t bytes = write(terminal, input_.data(), input_.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return false;
    if (bytes < 0) {
      input_.clear();  // nobody reads it any more
      return true;
    }
    input_.erase(0, static_cast<size_t>(bytes));
  }
  return true;
}

bool WorkerTerminal::TakeActive(Time now) {
  if (!used_ || now < told_active_at_ + kActiveInterval_s) return false;
  used_ = false;
  told_active_at_ = now;
  return true;
}

Time WorkerTerminal::NextDeadline() const {
  Time next = waiting_.has_value() ? asked_at_ + kAnswer_s : kNever;
  if (used_) next = std::min(next, told_active_at_ + kActiveInterval_s);
  return next;
}

// A program hears of a change by SIGWINCH.
void WorkerTerminal::SetWindow(int terminal, int rows, int columns) {
  const bool is_window =
      rows > 0 && columns > 0 && rows <= kWindowMax && columns <= kWindowMax;
  if (!is_window || (rows == rows_ && columns == columns_)) return;
  rows_ = rows;
  columns_ = columns;
  const winsize window{static_cast<unsigned short>(rows),
                       static_cast<unsigned short>(columns), 0, 0};
  ioctl(terminal, TIOCSWINSZ, &window);
}

TerminalReply WorkerTerminal::ReplyTo(const TerminalRequest& request) const {
  TerminalReply reply;
  reply.request = request.request;
  reply.worker = worker_;
  reply.offset = request.offset;
  reply.input_taken = input_end_;
  return reply;
}

}  // namespace gavel
