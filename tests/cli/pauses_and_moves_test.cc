// PAUSES and MOVES of a job are counted from the journal. They are the same in
// the queue, in the history and in `gavel simulate --replay`, and they count
// over all processes of the job and all starts of the coordinator.
#include <chrono>
#include <thread>

#include "coordinator/cli/history_table.h"
#include "coordinator/cli/past_jobs.h"
#include "coordinator/server/journal_writer.h"
#include "coordinator/server/queue_view.h"
#include "tests/server/busy_engine.h"
#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

class PausesAndMovesTest : public JournalFixture {
 protected:
  PausesAndMovesTest()
      : busy_([this](const action::Persist& row, const Engine& engine) {
          recorder_->Append(action::Persist(row), engine);
        }) {}

  // Starts a new process of the coordinator on the existing journal.
  void Start() {
    if (recorder_ != nullptr) WaitForDisk();
    recorder_.reset();  // lets go of the journal
    recorder_ = std::make_unique<JournalWriter>(SnapshotOptions{});
    auto journal = Journal::Open(path());
    ASSERT_OK(journal);
    busy_.engine = Engine(BusyOptions());
    const auto recovered = recorder_->Start(
        *std::move(journal), BusyOptions(), &busy_.engine,
        [](const std::string&) {}, [] {});
    ASSERT_OK(recovered);
    busy_.now = recovered->time + 1;
    busy_.Start(recovered->term, /*wall_s=*/1'000'000);
  }

  void WaitForDisk() {
    while (recorder_->state().status.ok() &&
           recorder_->state().persisted_seq < busy_.engine.position().seq) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_OK(recorder_->state().status);
  }

  const Worker& worker() const {
    return busy_.engine.jobs().at(kJob).workers.front();
  }

  // The worker gives its lease back and has the next one at once. The pauses
  // and moves that it reports are those of its process alone.
  void Pause(ReleaseCause cause = ReleaseCause::kPaused) {
    ++busy_.now;
    Progress told = BusyEngine::ProgressOf(++steps_, 0);
    told.pauses = told.moves = 77;
    busy_.Step(event::LeaseEnded{{kJob, 0, worker().incarnation},
                                 worker().held_epoch,
                                 told,
                                 false,
                                 cause});
    ASSERT_NE(worker().held_epoch, 0u);
  }

  // The job's process ends and another one takes its place.
  void Restart() {
    Pause();
    WorkerExited exit;
    exit.server = worker().server;
    exit.worker = {kJob, 0, worker().incarnation};
    exit.exit_code = kExitEvicted;
    exit.stopped = true;
    busy_.Step(event::WorkerGone{exit});
    ASSERT_NE(worker().held_epoch, 0u);
  }

  // The job's accelerator is lost, and the job continues on the other one.
  void Move() {
    const Accelerator& held = busy_.engine.cluster().accelerator(worker().held);
    busy_.Step(event::AcceleratorLost{held.server, held.info.uuid});
    Pause();
  }

  Json Queue() {
    QueueViews views(busy_.engine);
    std::shared_ptr<const QueueView> view;
    while (view == nullptr) view = views.Advance(busy_.now);
    return Json::parse(
        ListQueue({1, QueryKind::kQueue, JobId()}, *view, Identity()).json);
  }

  static constexpr JobId kJob{1};
  std::unique_ptr<JournalWriter> recorder_;
  BusyEngine busy_;
  uint64_t steps_ = 0;
};

TEST_F(PausesAndMovesTest, AreTheSameEverywhereOverRestarts) {
  Start();
  busy_.AddAccelerators(2);
  busy_.Submit("a");
  Pause();
  Restart();
  Start();
  Move();
  Pause(ReleaseCause::kResumeFailed);  // does not count: the job did not run
  Start();
  WaitForDisk();

  const Json queue = Queue();
  EXPECT_EQ(queue.at(0).at("pauses"), 3);
  EXPECT_EQ(queue.at(0).at("moves"), 1);

  HistoryFilter leases;
  leases.table = "leases";
  const auto ended = ReadHistoryFile(path(), leases);
  ASSERT_OK(ended);
  int paused = 0;
  for (const Json& lease : *ended) paused += lease.at("ended") == "paused";
  EXPECT_EQ(paused, 3);

  const auto jobs = ReadHistoryFile(path(), HistoryFilter());
  ASSERT_OK(jobs);
  EXPECT_EQ(jobs->at(0).at("pauses"), 3);
  EXPECT_EQ(jobs->at(0).at("moves"), 1);

  const auto past = ReadPast(path());
  ASSERT_OK(past);
  EXPECT_EQ(RealOutcome(*past).pauses, 3u);
  EXPECT_EQ(RealOutcome(*past).moves, 1u);
}

TEST_F(PausesAndMovesTest, EachHasItsReasonInTheHistory) {
  Start();
  busy_.AddAccelerators(2);
  busy_.Submit("a");
  Pause();
  Move();
  WaitForDisk();
  HistoryFilter reasons;
  reasons.table = "reasons";
  const auto rows = ReadHistoryFile(path(), reasons);
  ASSERT_OK(rows);
  ASSERT_EQ(rows->size(), 3u) << rows->dump();
  for (const Json& row : *rows) EXPECT_EQ(row.at("job"), 1);
  EXPECT_EQ(rows->at(0).at("text"), "paused: to start again");
  EXPECT_THAT(rows->at(1).value("text", ""), HasSubstr("paused: "));
  EXPECT_THAT(rows->at(1).value("text", ""), HasSubstr(" has failed"));
  const std::string moved = rows->at(2).value("text", "");
  EXPECT_THAT(moved,
              HasSubstr("moved from v100-0/v100-0-0 to v100-0/v100-0-1"));
  EXPECT_THAT(moved, HasSubstr("v100-0/v100-0-0 has failed"));
  HistoryFilter leases;
  leases.table = "leases";
  const auto stays = ReadHistoryFile(path(), leases);
  ASSERT_OK(stays);
  ASSERT_EQ(stays->size(), 3u);
  EXPECT_EQ(rows->at(0).at("lease"), stays->at(0).at("seq"));
  EXPECT_EQ(rows->at(1).at("lease"), stays->at(1).at("seq"));
  EXPECT_EQ(rows->at(2).at("lease"), stays->at(2).at("seq"));
}

// A lease that ended because an accelerator failed is no pause in either table.
TEST_F(PausesAndMovesTest, AFailedDeviceIsNoPause) {
  Start();
  busy_.AddAccelerators(2);
  busy_.Submit("a");
  Pause(ReleaseCause::kDeviceFailed);
  WaitForDisk();
  EXPECT_EQ(Queue().at(0).at("pauses"), 0);
  HistoryFilter leases;
  leases.table = "leases";
  const auto ended = ReadHistoryFile(path(), leases);
  ASSERT_OK(ended);
  EXPECT_EQ(ended->at(0).at("ended"), "device failed");
}

}  // namespace
}  // namespace gavel::testing
