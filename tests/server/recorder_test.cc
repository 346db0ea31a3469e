// The engine is recovered from its journal as it was, in bounded time, and so
// is the history beside it.
#include <cstdio>
#include <ctime>

#include "coordinator/engine/event.h"
#include "coordinator/server/history.h"
#include "coordinator/server/journal_writer.h"
#include "nlohmann/json.hpp"
#include "tests/server/busy_engine.h"
#include "tests/server/journal_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class RecorderTest : public JournalFixture {
 protected:
  struct Back {
    std::unique_ptr<Engine> engine;
    JournalWriter::Recovered recovered;
    std::vector<std::string> notes;
    double took_s = 0;  // processor time: load does not count
  };

  std::unique_ptr<JournalWriter> Open(Engine* engine, SnapshotOptions options,
                                      Back* back = nullptr) {
    auto recorder = std::make_unique<JournalWriter>(options);
    auto journal = Journal::Open(path());
    EXPECT_OK(journal);
    Back ignored;
    if (back == nullptr) back = &ignored;
    const auto recovered = recorder->Start(
        *std::move(journal), BusyOptions(), engine,
        [back](const std::string& note) { back->notes.push_back(note); },
        [] {});
    EXPECT_OK(recovered);
    if (recovered.ok()) back->recovered = *recovered;
    return recorder;
  }

  // Runs `body` on a busy engine whose rows are recorded.
  void Record(SnapshotOptions options,
              const std::function<void(BusyEngine&)>& body) {
    Engine nothing(BusyOptions());
    const auto recorder = Open(&nothing, options);
    BusyEngine busy([&](const action::Persist& row, const Engine& engine) {
      recorder->Append(action::Persist(row), engine);
    });
    busy.Start(1, /*wall_s=*/1'000'000);
    recorder_ = recorder.get();
    body(busy);
    WaitFor(*recorder, busy.engine.position().seq);
    last_ = std::move(busy.engine);
  }

  static void WaitFor(const JournalWriter& recorder, uint64_t seq) {
    EXPECT_TRUE(Eventually([&] {
      return !recorder.state().status.ok() ||
             recorder.state().persisted_seq >= seq;
    }));
    ASSERT_OK(recorder.state().status);
  }

  Back Recover() {
    Back back;
    back.engine = std::make_unique<Engine>(BusyOptions());
    const std::clock_t began = std::clock();
    Open(back.engine.get(), {}, &back);
    back.took_s = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    return back;
  }

  // The row of the newest snapshot; 0 if there is no snapshot.
  uint64_t NewestSnapshot() const {
    auto database = SqliteDatabase::OpenReadOnly(path());
    if (!database.ok()) return 0;
    const auto all = ListSnapshots(*database);
    return all.ok() && !all->empty() ? all->front() : 0;
  }

  json History(const HistoryFilter& filter, double now_s = 0) {
    auto database = SqliteDatabase::OpenReadOnly(path());
    EXPECT_OK(database);
    json all = json::array();
    uint64_t cursor = 0;
    do {
      const auto page = ReadHistory(*database, filter, cursor, now_s);
      EXPECT_OK(page);
      EXPECT_LE(page->json.size(), 64u * 1024);
      json part = json::parse(page->json);
      for (json& row : part) {
        all.push_back(row);
      }
      cursor = page->next_cursor;
    } while (cursor != 0);
    return all;
  }
  json History(const std::string& table, uint64_t job = 0) {
    HistoryFilter filter;
    filter.table = table;
    filter.job = job;
    return History(filter);
  }

  JournalWriter* recorder_ = nullptr;  // within Record
  Engine last_{BusyOptions()};
};

// Compares the state that decisions depend on.
void ExpectSameEngine(const Engine& a, const Engine& b) {
  EXPECT_EQ(a.position(), b.position());
  EXPECT_EQ(a.rounds(), b.rounds());
  EXPECT_EQ(a.round_ends_at(), b.round_ends_at());
  ASSERT_EQ(a.jobs().size(), b.jobs().size());
  for (const auto& [id, job] : a.jobs()) {
    const Job& other = b.jobs().at(id);
    EXPECT_EQ(job.state, other.state);
    EXPECT_EQ(job.epoch, other.epoch);
    EXPECT_EQ(job.assigned, other.assigned);
    EXPECT_EQ(job.received_s, other.received_s);
    ASSERT_EQ(job.workers.size(), other.workers.size());
    EXPECT_EQ(job.workers.front().held_epoch, other.workers.front().held_epoch);
    EXPECT_EQ(job.workers.front().incarnation,
              other.workers.front().incarnation);
    EXPECT_EQ(job.workers.front().progress.steps_done,
              other.workers.front().progress.steps_done);
  }
}

// A snapshot covers the rows that are on disk, whatever has happened since.
TEST_F(RecorderTest, ASnapshotNeedsNoPauseInTheRows) {
  Record({.rows = 20}, [&](BusyEngine& busy) {
    busy.AddAccelerators(3);
    for (int i = 0; i < 5; ++i) busy.Submit(StrCat("job-", i));
    EXPECT_TRUE(Eventually([&] {
      busy.now += 100;
      busy.ReportAll(static_cast<uint64_t>(busy.now));  // not waited for
      recorder_->MaybeSnapshot(busy.engine);
      return NewestSnapshot() > 0;
    }));
  });
  const Back back = Recover();
  EXPECT_LT(back.recovered.rows_replayed, back.recovered.position.seq);
  EXPECT_THAT(back.notes, IsEmpty());
  ExpectSameEngine(*back.engine, last_);
}

// Snapshots exist for this bound; the test has the size that is promised.
TEST_F(RecorderTest,
       AThousandJobsAndAHundredThousandEventsAreBackInTwoSeconds) {
  double longest_s = 0;
  Record({.rows = 10'000}, [&](BusyEngine& busy) {
    busy.AddAccelerators(1000);
    for (int i = 0; i < 1000; ++i) busy.Submit(StrCat("job-", i));
    for (uint64_t i = 1; busy.rows < 100'000; ++i) {
      busy.now += 60;
      busy.ReportAll(i * 600);
      if (i % 10 != 0) continue;
      WaitFor(*recorder_, busy.engine.position().seq);
      const double began = Seconds();
      recorder_->MaybeSnapshot(busy.engine);
      longest_s = std::max(longest_s, Seconds() - began);
    }
  });
  const Back back = Recover();
  EXPECT_GE(back.recovered.position.seq, 100'000u);
  EXPECT_LE(back.recovered.rows_replayed, 21'000u);
  EXPECT_LT(back.took_s, 2.0);
  ExpectSameEngine(*back.engine, last_);

  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute("DELETE FROM snapshot"));
  const Back whole = Recover();
  EXPECT_EQ(whole.recovered.rows_replayed, whole.recovered.position.seq);
  std::printf(
      "1000 jobs, %llu rows: back in %.3f s from a snapshot and %llu rows, in "
      "%.3f s from all rows; taking a snapshot held the event loop for %.4f s "
      "at most\n",
      static_cast<unsigned long long>(back.recovered.position.seq), back.took_s,
      static_cast<unsigned long long>(back.recovered.rows_replayed),
      whole.took_s, longest_s);
}

TEST_F(RecorderTest, ATermThatIsNotInTheJournalIsSaidAndNotBegunAgain) {
  Record({}, [](BusyEngine& busy) { busy.AddAccelerators(1); });
  WriteFile(path() + ".term", "9\n");
  const Back back = Recover();
  EXPECT_EQ(back.recovered.position.term, 1u);
  EXPECT_EQ(back.recovered.term, 10u);
  ASSERT_EQ(back.notes.size(), 1u);
  EXPECT_THAT(back.notes[0],
              HasSubstr("term 9 was begun here and is not in it"));
}

// The job's lease has not ended, so no row reports it.
TEST_F(RecorderTest, HistoryOfARunningJobIsUpToNow) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.now = 10;
    busy.Submit("first", 500);
    busy.Submit("second");
    for (uint64_t i = 1; i <= 3; ++i) {
      busy.now += 60;
      busy.ReportAll(i * 100, /*steps_per_s=*/4);
    }
  });
  const json jobs = History(HistoryFilter(), /*now_s=*/1'000'310);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["run_s"], 300);
  EXPECT_EQ(jobs[0]["accelerator_s"]["v100"], 300);
  EXPECT_EQ(jobs[0]["steps_done"], 300);
  EXPECT_EQ(jobs[1]["run_s"], 0);
}

TEST_F(RecorderTest, HistoryTellsWhatBecameOfAJob) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.now = 10;
    busy.Submit("first", 500);
    busy.Submit("second");
    for (uint64_t i = 1; i <= 5; ++i) {
      busy.now += 60;
      busy.ReportAll(i * 100, /*steps_per_s=*/4);
    }
    busy.now = 400;
    busy.End(JobId(1), 500);
  });
  const json jobs = History("jobs");
  ASSERT_EQ(jobs.size(), 2u);
  const json& first = jobs[0];
  EXPECT_EQ(first["job"], 1);
  EXPECT_EQ(first["name"], "first");
  EXPECT_EQ(first["user"], "ada");
  EXPECT_EQ(first["state"], "CD");
  EXPECT_EQ(first["over"], 1);
  EXPECT_EQ(first["submitted_s"], 1'000'010);
  EXPECT_EQ(first["started_s"], 1'000'010);
  EXPECT_EQ(first["ended_s"], 1'000'400);
  EXPECT_EQ(first["run_s"], 390);
  EXPECT_EQ(first["steps_done"], 500);
  EXPECT_EQ(first["steps_total"], 500);
  EXPECT_EQ(first["accelerator_s"]["v100"], 390);
  EXPECT_EQ(first["steps_per_s"]["v100"], 4);
  EXPECT_EQ(first["exit_code"], 0);
  EXPECT_EQ(jobs[1]["state"], "R");  // had the accelerator next
  EXPECT_EQ(jobs[1]["ended_s"], 0);

  const json leases = History("leases");
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0]["uuid"], "v100-0-0");
  EXPECT_EQ(leases[0]["from_s"], 1'000'010);
  EXPECT_EQ(leases[0]["to_s"], 1'000'400);
  EXPECT_EQ(leases[0]["steps_to"], 500);
  EXPECT_EQ(leases[0]["ended"], "finished");
  EXPECT_EQ(leases[1]["to_s"], 0);
  EXPECT_EQ(History("leases", 2).size(), 1u);
  EXPECT_EQ(History("steps", 1).size(), 5u);
}

TEST_F(RecorderTest, HistoryTellsFailures) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.Submit("a");
    for (int i = 0; i < 10 && busy.engine.jobs().at(JobId(1)).active(); ++i) {
      busy.now += 100;
      busy.End(JobId(1), 7, /*exit_code=*/3);
    }
  });
  const json job = History("jobs").at(0);
  EXPECT_EQ(job["state"], "F");
  EXPECT_EQ(job["exit_code"], 3);
  EXPECT_GE(job["failures"], 3);
  EXPECT_NE(job["reason"].get<std::string>(), "");
}

TEST_F(RecorderTest, HistoryTellsWhichJobsAreOpaque) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.Submit("a");
    JobSpec spec;
    spec.name = "b";
    spec.argv = {"./command"};
    spec.owner = "ada";
    spec.job_class = JobClass::kOpaque;
    busy.Step(event::JobSubmitted{spec, 1});
  });
  const json jobs = History("jobs");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["opaque"], 0);
  EXPECT_EQ(jobs[1]["opaque"], 1);
  // A file that an earlier version wrote has no such table.
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute("DROP TABLE history_opaque"));
  EXPECT_EQ(History("jobs").at(1)["opaque"], 0);
}

// While it waits, the policy has a share for it.
TEST(HistoryProjectorTest, NoHoursAreIntendedForAnOpaqueJob) {
  Engine engine(BusyOptions());
  HistoryProjector projector;
  uint64_t seq = 0;
  std::vector<HistoryRow> rows;
  const auto replay = [&](Time now, const Event& event) {
    engine.Replay(++seq, 1, now, event);
    rows = projector.Observe(seq, now, event, engine);
  };
  event::JobSubmitted submitted;
  submitted.spec.name = "a";
  submitted.spec.argv = {"./train"};
  submitted.spec.owner = "ada";
  event::JobSubmitted opaque = submitted;
  opaque.spec.owner = "olga";
  opaque.spec.job_class = JobClass::kOpaque;
  event::AllocationReady ready;
  ready.result.outcome = SolveOutcome::kOptimal;
  ready.result.allocation = Allocation::FromRows(
      {{JobId(1), JobId()}, {JobId(2), JobId()}}, 1, {0.5, 0.5});
  replay(0, event::CoordinatorStarted{1, 360, 60});
  replay(1, submitted);
  replay(2, opaque);
  replay(3, ready);
  ASSERT_EQ(engine.jobs().at(JobId(2)).target_share, 0.5);
  replay(4, event::RoundStarted());
  const HistoryShares* shares = nullptr;
  for (const HistoryRow& row : rows) {
    if (const auto* one = std::get_if<HistoryShares>(&row)) shares = one;
  }
  ASSERT_NE(shares, nullptr);
  EXPECT_EQ(shares->entitled, (std::map<std::string, double>{{"ada", 0.5}}));
}

TEST_F(RecorderTest, HistoryIsFilteredByUserStateAndTime) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    for (int i = 1; i <= 4; ++i) busy.Submit(StrCat("job-", i));
    for (uint64_t i = 1; i <= 3; ++i) {
      busy.now = 1000.0 * static_cast<double>(i);
      busy.End(JobId(i), 10);
    }
  });
  HistoryFilter filter;
  filter.state = "CD";
  EXPECT_EQ(History(filter).size(), 3u);
  filter.since_s = 1'001'500;
  EXPECT_EQ(History(filter).size(), 2u);
  filter.user = "bob";
  EXPECT_EQ(History(filter).size(), 0u);
  HistoryFilter early;
  early.until_s = 999'999;
  EXPECT_EQ(History(early).size(), 0u);
}

TEST_F(RecorderTest, StepReportsAreThinned) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.Submit("a");
    for (uint64_t i = 1; i <= 3000; ++i) {
      busy.now += 60;
      busy.ReportAll(i);
    }
  });
  const json steps = History("steps", 1);
  EXPECT_LE(steps.size(), kHistoryStepsMax);
  EXPECT_GE(steps.size(), kHistoryStepsMax / 4);
  EXPECT_EQ(steps[0]["steps_done"], 1);  // from the first on
  EXPECT_GT(steps.back()["steps_done"], 2900);
}

// A generation is in the history once, from when it was first reported.
TEST_F(RecorderTest, HistoryHasTheLastCheckpointsOfAJob) {
  constexpr uint64_t kWritten = kHistoryCheckpointsMax + 10;
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(1);
    busy.Submit("a");
    const Worker worker = busy.engine.jobs().at(JobId(1)).workers.front();
    for (uint64_t i = 1; i <= kWritten; ++i) {
      for (uint64_t repeats = 0; repeats < 2; ++repeats) {
        busy.now += 60;
        Progress progress = BusyEngine::ProgressOf(10 * i + repeats, 1);
        progress.last_generation = {2, 10 * i};
        progress.state_bytes = 4096;
        busy.Step(event::StepsReported{
            {JobId(1), 0, worker.incarnation}, worker.held_epoch, progress});
      }
    }
  });
  const json checkpoints = History("checkpoints", 1);
  ASSERT_EQ(checkpoints.size(), kHistoryCheckpointsMax);
  EXPECT_EQ(checkpoints.front()["number"], 11);
  const json& last = checkpoints.back();
  EXPECT_EQ(last["number"], kWritten);
  EXPECT_EQ(last["epoch"], 2);
  EXPECT_EQ(last["step"], 10 * kWritten);
  EXPECT_EQ(last["at_s"], 1'000'000 + 60 * (2 * kWritten - 1));
  EXPECT_EQ(last["state_bytes"], 4096);
  EXPECT_EQ(last["server"], "v100-0");
}

TEST_F(RecorderTest, HistoryIsWhatTheRowsGiveAgain) {
  Record({}, [](BusyEngine& busy) {
    busy.AddAccelerators(3);
    for (int i = 1; i <= 8; ++i) busy.Submit(StrCat("job-", i));
    for (uint64_t i = 1; i <= 8; ++i) {
      busy.now += 90;
      busy.ReportAll(i * 5);
      busy.End(JobId(i), i * 5, i == 4 ? 1 : 0);
    }
  });
  const json jobs = History("jobs");
  const json leases = History("leases");
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute(
      "DELETE FROM history_jobs; DELETE FROM history_leases;"
      "DELETE FROM history_steps; DELETE FROM history_rounds"));
  Engine engine(BusyOptions());
  HistoryProjector projector;
  for (const JournalRow& row : ReadJournal(path()).rows) {
    const Event event = *DecodeEvent(row.row);
    engine.Replay(row.seq, row.term, row.time, event);
    ASSERT_OK(WriteHistory(
        *database, projector.Observe(row.seq, row.time, event, engine)));
  }
  EXPECT_EQ(History("leases"), leases);
  const json again = History("jobs");
  ASSERT_EQ(again.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const char* key : {"state", "run_s", "ended_s", "steps_done",
                            "accelerator_s", "failures"}) {
      EXPECT_EQ(again[i][key], jobs[i][key]) << key << " of job " << i + 1;
    }
  }
}

// The row of its end is the last one that the job has.
TEST(HistoryProjectorTest, AProcessThatNeverSpokeIsPaidForAtTheJobsEnd) {
  Engine engine(BusyOptions());
  HistoryProjector projector;
  uint64_t seq = 0;
  std::vector<HistoryRow> rows;
  const auto replay = [&](Time now, const Event& event) {
    engine.Replay(++seq, 1, now, event);
    rows = projector.Observe(seq, now, event, engine);
  };
  event::ServerJoined joined;
  joined.hello.server = "here";
  joined.hello.incarnation = 1;
  joined.hello.accelerators.emplace_back();
  joined.hello.accelerators[0].type = "v100";
  joined.hello.accelerators[0].uuid = "here-0";
  event::JobSubmitted submitted;
  submitted.spec.name = "a";
  submitted.spec.argv = {"./train"};
  replay(0, event::CoordinatorStarted{1, 360, 60});
  replay(1, joined);
  replay(2, submitted);
  replay(3, event::UnitsAssigned{{{{JobId(1), JobId()}, {AcceleratorId(1)}}}});
  replay(10, event::JobCommanded{JobId(1), CommandKind::kCancel});
  event::WorkerGone gone;
  gone.exit.worker = {JobId(1), 0, 1};
  gone.exit.server = "here";
  gone.launched_on = AcceleratorId(1);
  gone.launched_at = 4;
  replay(24, gone);
  ASSERT_EQ(rows.size(), 2u);
  const auto* const lease = std::get_if<HistoryLease>(&rows[0]);
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(lease->ended, "never spoke");
  const auto* const job = std::get_if<HistoryJob>(&rows[1]);
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->over);
  EXPECT_EQ(job->accelerator_s.at("v100"), 20);
}

TEST_F(RecorderTest, LongHistoriesComeInPages) {
  Record({}, [](BusyEngine& busy) {
    for (int i = 0; i < 700; ++i) busy.Submit(StrCat("job-", i));
  });
  EXPECT_EQ(History("jobs").size(), 700u);
  auto database = SqliteDatabase::OpenReadOnly(path());
  EXPECT_NE(ReadHistory(*database, {}, 0)->next_cursor, 0u);
}

TEST(HistoryFilterTest, IsReadBackAndRefusedWhenItIsNone) {
  HistoryFilter filter;
  filter.table = "leases";
  filter.job = 7;
  filter.user = "a\xff\"b";
  filter.since_s = 1.5;
  const auto back = ParseHistoryFilter(FormatHistoryFilter(filter));
  ASSERT_OK(back);
  EXPECT_EQ(back->table, "leases");
  EXPECT_EQ(back->job, 7u);
  EXPECT_EQ(back->since_s, 1.5);
  for (const char* bad :
       {"", "[]", "{", "{\"table\":\"secrets\"}", "{\"table\":1}",
        "{\"job\":-1}", "{\"job\":\"x\"}", "{\"since_s\":{}}"}) {
    EXPECT_THAT(ParseHistoryFilter(bad), IsInvalid("")) << bad;
  }
}

// Rows beyond an older copy of the journal are given up. Peers that saw them
// are believed from then on, and the ids of lost jobs are not used again.
TEST(AcceptedLoss, PositionsThatAreLostAreKnownAndNewJobsGetOtherIds) {
  const auto start = [](BusyEngine& busy, uint64_t term, bool after_loss) {
    event::CoordinatorStarted started{term};
    started.after_loss = after_loss;
    busy.Step(started);
  };
  for (const bool accepted : {false, true}) {
    BusyEngine busy([](const action::Persist& row, const Engine&) {
      const auto back = DecodeEvent(row.row);
      ASSERT_OK(back);
      const auto* begun = std::get_if<event::CoordinatorStarted>(&*back);
      if (begun != nullptr && begun->term == 1000) {
        EXPECT_EQ(begun->after_loss,
                  std::get<event::CoordinatorStarted>(*row.event).after_loss);
      }
    });
    start(busy, 1, false);
    busy.Submit("a");
    start(busy, 2, false);  // it ended: no loss was accepted yet
    const JournalPosition lost{3, 5000};
    start(busy, 1000, accepted);
    EXPECT_EQ(busy.engine.Knows(lost), accepted);
    EXPECT_EQ(busy.engine.Knows({1, 5000}), accepted);
    EXPECT_FALSE(busy.engine.Knows({1001, 1}));
    busy.Submit("b");
    EXPECT_EQ(busy.engine.next_job().value() > 10'000, accepted);
    start(busy, 1001, false);
    EXPECT_EQ(busy.engine.Knows(lost), accepted);
    EXPECT_FALSE(busy.engine.Knows({1000, 5000}));
  }
}

}  // namespace
}  // namespace gavel::testing
