// A folder, a log, and the options of the sessions that tests open.
#ifndef GAVEL_TESTS_ITERATOR_SESSION_FIXTURE_H_
#define GAVEL_TESTS_ITERATOR_SESSION_FIXTURE_H_

#include "gavel/session.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {

class SessionTest : public Test {
 protected:
  // Without a coordinator.
  SessionOptions Alone() {
    SessionOptions options;
    options.device = TestDevice();
    options.checkpoint_directory = folder_.path() + "/checkpoints";
    options.log = log_.Sink();
    return options;
  }
  // As worker 1.0.1 of the coordinator at `endpoint`, on the device of its
  // lease.
  SessionOptions Under(const std::string& endpoint) {
    SessionOptions options;
    options.coordinator = endpoint;
    options.job = 1;
    options.incarnation = 1;
    options.run_directory = folder_.path() + "/run";
    options.checkpoint_directory = folder_.path() + "/checkpoints";
    options.log = log_.Sink();
    return options;
  }
  std::unique_ptr<Session> Open(int64_t steps_total = 0) {
    SessionOptions options = Alone();
    options.steps_total = steps_total;
    return Session::Create(options);
  }

  TemporaryFolder folder_;
  Lines log_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_SESSION_FIXTURE_H_
