// What tests of the engine's parts share: servers, jobs that run, and a
// recorder that keeps events instead of applying them.
#ifndef GAVEL_TESTS_ENGINE_PARTS_KIT_H_
#define GAVEL_TESTS_ENGINE_PARTS_KIT_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/parts.h"
#include "coordinator/engine/state/recorder.h"
#include "core/text.h"
#include "gtest/gtest.h"

namespace gavel::engine {

class KeptEvents final : public Recorder {
 public:
  void Record(Time, Event event) override {
    events.push_back(std::move(event));
  }
  template <class E>
  const E* Last() const {
    return events.empty() ? nullptr : std::get_if<E>(&events.back());
  }
  std::vector<Event> events;
};

inline AgentHello HelloOf(const std::string& server, int accelerators,
                          const std::string& type = "v100") {
  AgentHello hello;
  hello.server = server;
  hello.incarnation = 1;
  for (int i = 0; i < accelerators; ++i) {
    AcceleratorInfo info;
    info.type = type;
    info.uuid = StrCat(server, "-", i);
    hello.accelerators.push_back(info);
  }
  return hello;
}

inline JobSpec SpecOf(const std::string& name, int scale_factor = 1) {
  JobSpec spec;
  spec.name = name;
  spec.scale_factor = scale_factor;
  spec.throughputs = {{"v100", 10}};
  return spec;
}

// All parts, wired as in the engine, of a cluster with one server "here". What
// a part records is kept and not applied.
class PartsTest : public testing::Test {
 protected:
  PartsTest() : PartsTest(2) {}
  explicit PartsTest(int accelerators)
      : parts_(
            [] {
              EngineOptions options;
              options.journal = false;
              options.round_duration_s = 100;
              return options;
            }(),
            kept_) {
    const AgentHello hello = HelloOf("here", accelerators);
    EXPECT_TRUE(parts_.cluster.Join("here", hello.accelerators).ok());
    parts_.agents.Join(0, hello, 0);
    parts_.assigned.Recount();
  }

  Job& Add(const std::string& name, int scale_factor = 1) {
    const JobSpec spec = SpecOf(name, scale_factor);
    Job& job = parts_.jobs.Add(0, spec);
    parts_.throughputs.AddJob(job.id, spec.throughputs, scale_factor);
    return job;
  }
  // Rank 0 runs on it since 0 s.
  Worker& Run(Job& job, AcceleratorId where) {
    job.assigned = {where};
    job.epoch = 1;
    parts_.jobs.NoteWaiting(job);
    parts_.assigned.Add(where, job.id);
    Worker& worker = job.workers.front();
    worker.incarnation = 1;
    worker.process = ProcessState::kJoined;
    worker.server = "here";
    worker.spoke = true;
    worker.held_epoch = job.epoch;
    worker.held = where;
    parts_.leases.Begin(where, {job.id, 0, 1});
    return worker;
  }
  PolicyResult AssignedTo(const Job& job, size_t type) const {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.is_assignment = true;
    result.assignment = {{{job.id, JobId()}, type}};
    return result;
  }
  template <class M>
  int Sent(Actions actions) const {
    int count = 0;
    for (const Action& action : actions) {
      const Message* message = nullptr;
      if (const auto* to = std::get_if<action::SendToWorker>(&action)) {
        message = &to->message;
      } else if (const auto* to_agent =
                     std::get_if<action::SendToAgent>(&action)) {
        message = &to_agent->message;
      }
      count +=
          message != nullptr && std::holds_alternative<M>(*message) ? 1 : 0;
    }
    return count;
  }

  const AcceleratorId first_{1}, second_{2};
  KeptEvents kept_;
  Parts parts_;
};

}  // namespace gavel::engine

#endif  // GAVEL_TESTS_ENGINE_PARTS_KIT_H_
