#include "coordinator/server/queue_view.h"

#include "coordinator/server/query.h"
#include "coordinator/server/rows.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "tests/engine/engine_driver.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using nlohmann::json;

JobSpec Of(const std::string& owner) {
  JobSpec spec;
  spec.owner = owner;
  return spec;
}

std::vector<uint64_t> List(const QueueView& view, const std::string& filter,
                           const std::string& reader = "") {
  QueryRequest request{1, QueryKind::kQueue, JobId(), 0, filter};
  std::vector<uint64_t> ids;
  do {
    Identity identity;
    identity.name = reader;
    const QueryReply reply = ListQueue(request, view, identity);
    EXPECT_EQ(reply.error, "");
    for (const json& row : json::parse(reply.json)) ids.push_back(row["id"]);
    request.cursor = reply.next_cursor;
  } while (request.cursor != 0);
  return ids;
}

std::shared_ptr<const QueueView> MakeView(QueueViews& views, Time now) {
  while (true) {
    if (auto view = views.Advance(now)) return view;
  }
}

TEST(QueueView, AFilterLeavesWhatItAsksFor) {
  EngineDriver driver(1);
  for (const char* owner : {"ann", "bob", "ann", "bob", "ann"}) {
    driver.Submit(StrCat("of-", owner, driver.now), 1, Of(owner));
    driver.At(driver.now + 1);
  }
  for (const JobId job : {JobId(2), JobId(3), JobId(4)}) {
    driver.At(driver.now + 1);
    driver.Step(event::JobCommanded{job, CommandKind::kCancel});
  }
  QueueViews views(driver.engine());
  const auto view = MakeView(views, driver.now);
  EXPECT_THAT(List(*view, ""), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(List(*view, R"({"user":"ann"})"), ElementsAre(1, 3, 5));
  EXPECT_THAT(List(*view, R"({"states":["CA"]})"), ElementsAre(2, 3, 4));
  EXPECT_THAT(List(*view, R"({"states":["CA","PD"],"user":"ann"})"),
              ElementsAre(1, 3, 5));
  EXPECT_THAT(List(*view, R"({"own":true})", "bob"), ElementsAre(2, 4));
  // `ended_max` lists the jobs that ended last.
  EXPECT_THAT(List(*view, R"({"ended_max":2})"), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(List(*view, R"({"ended_max":1,"user":"bob"})"), ElementsAre(4));
  EXPECT_THAT(List(*view, R"({"ended_max":0})"), ElementsAre(1, 5));
  EXPECT_THAT(List(*view, R"({"states":["nonsense"]})"), IsEmpty());
  EXPECT_THAT(List(*view, R"({"name":"of-bob1"})"), ElementsAre(2));
  for (const char* wrong : {"{", "[]", R"({"user":1})", R"({"colour":"red"})",
                            R"({"states":[1]})", R"({"ended_max":-1})"}) {
    const QueryRequest request{1, QueryKind::kQueue, JobId(), 0, wrong};
    EXPECT_THAT(ListQueue(request, *view, Identity()).error,
                HasSubstr("no filter"));
  }
}

TEST(QueueView, TotalsAreTheSumsOfItsRows) {
  EngineDriver driver(1);
  const JobId runs = driver.Submit("runs");
  driver.Run(runs);
  driver.Submit("waits");
  JobSpec opaque;
  opaque.job_class = JobClass::kOpaque;
  driver.Submit("opaque", 1, opaque);
  const JobId over = driver.Submit("over");
  driver.At(driver.now + 1);
  driver.Step(event::JobCommanded{over, CommandKind::kCancel});
  QueueViews views(driver.engine());
  const auto view = MakeView(views, driver.now);
  const QueryReply rows =
      ListQueue({1, QueryKind::kQueue, JobId(), 0, ""}, *view, Identity());
  double deviation = 0;
  double target = 0;
  double got = 0;
  std::map<std::string, uint64_t> states;
  for (const json& row : json::parse(rows.json)) {
    if (row["state"] == "CA") continue;
    ++states[row["state"]];
    if (row["opaque"] == true) continue;
    deviation +=
        std::abs(double{row["share_got"]} - double{row["share_target"]});
    target += double{row["share_target"]};
    got += double{row["share_got"]};
  }
  const QueryReply reply =
      ListQueue({1, QueryKind::kQueue, JobId(), 0, R"({"totals":true})"}, *view,
                Identity());
  EXPECT_EQ(reply.error, "");
  EXPECT_EQ(reply.next_cursor, 0u);
  const json totals = json::parse(reply.json);
  EXPECT_EQ(totals["sharing"], 2);
  EXPECT_NEAR(double{totals["deviation"]}, deviation, 1e-9);
  ASSERT_EQ(totals["users"].size(), 1u);
  EXPECT_NEAR(double{totals["users"][0]["target"]}, target, 1e-9);
  EXPECT_NEAR(double{totals["users"][0]["got"]}, got, 1e-9);
  EXPECT_THAT(totals["apps"], IsEmpty());
  std::map<std::string, uint64_t> counted;
  for (const json& one : totals["reasons"]) {
    counted[one["state"]] += uint64_t{one["jobs"]};
  }
  EXPECT_EQ(counted, states);
}

TEST(QueueView, AJobSaysThatItFailedAndThatItsAgentIsOutOfReach) {
  EngineDriver driver(1);
  const JobId job = driver.Submit("a");
  driver.Run(job);
  WorkerExited exit = driver.ExitOf(job);
  exit.exit_code = 3;
  driver.Step(event::WorkerGone{exit});
  driver.Run(job);
  QueueViews views(driver.engine());
  const auto reason_of = [&] {
    const auto view = MakeView(views, driver.now);
    QueueRow row;
    FillQueueRow(*view->jobs[0], view->line->Get(), driver.now, Identity(),
                 &row);
    return row.reason;
  };
  EXPECT_THAT(reason_of(),
              AllOf(HasSubstr("running on v100"),
                    HasSubstr("; it failed once (last: exit code 3), and is "
                              "held after 3"),
                    Not(HasSubstr("reached"))));
  driver.Step(event::ServerLost{"here"});
  EXPECT_THAT(reason_of(), HasSubstr("the agent of server here can't be "
                                     "reached"));
}

TEST(QueueView, TotalsNameTheUsersAndAppsWithTheGreatestTargets) {
  EngineDriver driver(1);
  for (size_t i = 0; i < kSharersMax + 5; ++i) {
    JobSpec spec;
    spec.owner = StrCat("user-", i);
    spec.app = "search";
    driver.Submit(StrCat("job-", i), 1, spec);
  }
  driver.At(driver.now + 1);
  QueueViews views(driver.engine());
  const QueryReply reply =
      ListQueue({1, QueryKind::kQueue, JobId(), 0, R"({"totals":true})"},
                *MakeView(views, driver.now), Identity());
  const json totals = json::parse(reply.json);
  ASSERT_EQ(totals["users"].size(), kSharersMax);
  ASSERT_EQ(totals["apps"].size(), kSharersMax);
  for (size_t i = 1; i < kSharersMax; ++i) {
    EXPECT_GE(totals["users"][i - 1]["target"], totals["users"][i]["target"]);
  }
  EXPECT_EQ(totals["apps"][0]["name"], "search");
  EXPECT_EQ(totals["apps"][0]["owner"], totals["users"][0]["name"]);
}

TEST(QueueView, ElementsOfAnArrayAreFoundByItsIdAndItsName) {
  EngineDriver driver(1);
  driver.Submit("other");
  JobSpec spec;
  spec.array = "0-4%1";
  driver.Submit("lm", 1, spec);
  driver.Submit("lm_x");
  QueueViews views(driver.engine());
  const auto view = MakeView(views, driver.now);
  EXPECT_THAT(List(*view, R"({"array":2})"), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(List(*view, R"({"array":2,"array_index":3})"), ElementsAre(6));
  EXPECT_THAT(List(*view, R"({"array":1})"), IsEmpty());
  EXPECT_THAT(List(*view, R"({"name":"lm"})"), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(List(*view, R"({"name":"lm_3"})"), ElementsAre(6));
  EXPECT_THAT(List(*view, R"({"name":"lm_x"})"), ElementsAre(8));
  // An element that waits for others is not shown as held.
  EXPECT_THAT(List(*view, R"({"array":2,"states":["PD"]})"),
              ElementsAre(3, 4, 5, 6, 7));
  QueueRow row;
  FillQueueRow(*view->jobs[3], view->line->Get(), driver.now, Identity(), &row);
  EXPECT_EQ(row.name, "lm_2");
  EXPECT_EQ(row.array, 2U);
  EXPECT_EQ(row.array_name, "lm");
  EXPECT_EQ(row.array_index, 2);
  EXPECT_EQ(row.code, "array_limit");
  FillQueueRow(*view->jobs[0], view->line->Get(), driver.now, Identity(), &row);
  EXPECT_EQ(row.array, 0U);
  EXPECT_FALSE(row.array_index.has_value());
}

TEST(QueueView, AnElementShowsItsValuesOfTheSweepToItsOwner) {
  EngineDriver driver(2);
  JobSpec spec;
  spec.owner = "ada";
  spec.sweep = {{"depth", {"2", "4"}}, {"lr", {"0.1", std::string(500, '9')}}};
  driver.Submit("lm", 1, spec);
  QueueViews views(driver.engine());
  const auto view = MakeView(views, driver.now);
  Identity reader;
  reader.name = "ada";
  reader.role = Role::kUser;
  QueueRow row;
  const auto fill = [&](size_t job) {
    FillQueueRow(*view->jobs[job], view->line->Get(), driver.now, reader, &row);
  };
  fill(2);
  EXPECT_THAT(row.sweep, ElementsAre(Pair("depth", "4"), Pair("lr", "0.1")));
  EXPECT_EQ(WhyRowOf(*view->jobs[2], view->line->Get(), reader, {}).sweep,
            row.sweep);
  fill(3);
  EXPECT_LE(row.sweep[1].second.size(), 103U) << "it is cut";
  reader.name = "bob";
  fill(2);
  EXPECT_THAT(row.sweep, IsEmpty());
}

// One sorting gives every job the place that `why` gives it alone.
TEST(QueueView, OneElementMayStandForItsArray) {
  EngineDriver driver(1);
  JobSpec spec;
  spec.array = "0-4%1";
  driver.Submit("lm", 1, spec);
  driver.Submit("lm_x");
  spec.owner = "bob";
  driver.Submit("lm", 1, spec);
  const auto list = [&](const std::string& filter) {
    QueueViews views(driver.engine());
    return List(*MakeView(views, driver.now), filter);
  };
  EXPECT_THAT(list(R"({"one_of_array":true})"), ElementsAre(2, 7, 9));
  EXPECT_THAT(list(R"({"one_of_array":true,"name":"lm"})"), ElementsAre(2, 9));
  EXPECT_THAT(list(R"({"one_of_array":true,"name":"lm_3"})"),
              ElementsAre(5, 12));
  driver.At(driver.now + 1);
  driver.Step(event::JobCommanded{JobId(2), CommandKind::kCancel});
  EXPECT_THAT(list(R"({"one_of_array":true,"array":1})"), ElementsAre(3));
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  EXPECT_THAT(list(R"({"one_of_array":true,"array":1})"), ElementsAre(2));
}

TEST(QueueView, PlacesInLineAreThoseOfWhy) {
  EngineDriver driver(2, "max_min_fairness");
  for (int i = 0; i < 12; ++i) {
    JobSpec spec;
    spec.weight = 1 + i % 3;
    driver.Submit(StrCat("job-", i), 1 + i % 2, spec);
  }
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (!job.assigned.empty()) driver.Run(id);
  }
  driver.At(150);
  QueueViews views(driver.engine());
  const auto view = MakeView(views, driver.now);
  int in_line = 0;
  for (const auto& job : view->jobs) {
    Reason reason = job->reason;
    view->line->Get().Tell(job->id, &reason);
    const Reason alone = driver.engine().Why(job->id, driver.now);
    EXPECT_EQ(RenderReason(reason), RenderReason(alone)) << job->id.value();
    in_line += std::holds_alternative<reason::Priority>(reason);
  }
  EXPECT_GT(in_line, 5);
}

TEST(QueueView, AViewStaysAsItWas) {
  EngineDriver driver(1);
  driver.Submit("a");
  QueueViews views(driver.engine());
  const auto before = MakeView(views, driver.now);
  driver.Submit("b");
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  EXPECT_THAT(List(*before, ""), ElementsAre(1));
  EXPECT_THAT(List(*before, R"({"states":["CA"]})"), IsEmpty());
  const auto after = MakeView(views, driver.now);
  EXPECT_THAT(List(*after, ""), ElementsAre(1, 2));
  EXPECT_THAT(List(*after, R"({"states":["CA"]})"), ElementsAre(1));
}

TEST(QueueView, AListingContinuesInTheViewThatItBeganWith) {
  EngineDriver driver(1);
  const JobId job = driver.Submit("a");
  QueueViews views(driver.engine());
  EXPECT_EQ(views.Recent(driver.now), nullptr);
  const auto first = MakeView(views, driver.now);
  const uint64_t cursor = ListingCursor{first->number, job}.Write();
  EXPECT_EQ(views.Recent(driver.now + 1), first);
  EXPECT_EQ(views.ForPage(cursor, driver.now + 1), first);
  EXPECT_EQ(views.ForPage(cursor, driver.now + 60), nullptr);
  const auto second = MakeView(views, driver.now + 1);
  EXPECT_EQ(views.Recent(driver.now + 1), second);
  EXPECT_EQ(views.ForPage(cursor, driver.now + 1), first);
  EXPECT_EQ(ListingCursor::Read(cursor).job, job);
}

// So it continues in a newer one, and the first can be freed.
TEST(QueueView, TheViewOfASlowListingIsDropped) {
  EngineDriver driver(1);
  const JobId job = driver.Submit("a");
  QueueViews views(driver.engine());
  const auto first = MakeView(views, driver.now);
  const uint64_t cursor = ListingCursor{first->number, job}.Write();
  for (size_t i = 0; i < QueueViews::kKept; ++i) MakeView(views, driver.now);
  EXPECT_THAT(views.TakeDropped(), ElementsAre(first));
  EXPECT_EQ(views.ForPage(cursor, driver.now), views.Recent(driver.now));
  EXPECT_THAT(views.TakeDropped(), IsEmpty());
}

TEST(QueueView, AViewNamesItselfInTheCursor) {
  EngineDriver driver(1);
  for (int i = 0; i < 2000; ++i) driver.Submit(StrCat("job-", i));
  QueueViews views(driver.engine());
  MakeView(views, driver.now);
  const auto second = MakeView(views, driver.now);
  const QueryRequest request{1, QueryKind::kQueue, JobId(), 0, ""};
  const QueryReply reply = ListQueue(request, *second, Identity());
  ASSERT_NE(reply.next_cursor, 0u);
  EXPECT_EQ(ListingCursor::Read(reply.next_cursor).view, second->number);
  EXPECT_LT(reply.next_cursor, uint64_t{1} << 53);
}

// With slices of no length, each call copies one job.
constexpr double kOneByOne = 0;

TEST(QueueView, AnAcceleratorThatMovesWhileAViewIsMadeIsWithOneJob) {
  EngineDriver driver(1);
  const JobId first = driver.Submit("first");
  const JobId second = driver.Submit("second");
  driver.Run(first);
  QueueViews views(driver.engine(), kOneByOne);
  EXPECT_EQ(views.Advance(driver.now), nullptr);
  EXPECT_TRUE(views.is_making());
  driver.Gone(driver.Key(first), 0);
  driver.At(driver.now + 1);
  driver.Run(second);
  views.NoteHolder(first);
  views.NoteHolder(second);
  const auto view = MakeView(views, driver.now);
  ASSERT_EQ(view->jobs.size(), 2u);
  EXPECT_THAT(view->jobs[0]->held, IsEmpty());
  EXPECT_EQ(view->jobs[1]->held.size(), 1u);
  EXPECT_FALSE(views.is_making());
}

TEST(QueueView, JobsThatComeAndEndWhileAViewIsMadeDoNoHarm) {
  EngineDriver driver(1);
  for (const char* name : {"a", "b", "c"}) {
    JobSpec spec;
    spec.app = "search";
    driver.Submit(name, 1, spec);
  }
  QueueViews views(driver.engine(), kOneByOne);
  EXPECT_EQ(views.Advance(driver.now), nullptr);
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  driver.Step(event::JobCommanded{JobId(2), CommandKind::kCancel});
  driver.Submit("d");
  const auto view = MakeView(views, driver.now);
  EXPECT_THAT(List(*view, ""), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(view->jobs[1]->state, "CA");
  EXPECT_TRUE(view->RhoOf(JobId(3)).has_value());
  EXPECT_FALSE(view->RhoOf(JobId(2)).has_value());
}

// The rows that are made have a column for each type.
TEST(QueueView, AViewBeginsAnewWhenATypeJoins) {
  EngineDriver driver(1);
  driver.Submit("a");
  driver.Submit("b");
  QueueViews views(driver.engine(), kOneByOne);
  EXPECT_EQ(views.Advance(driver.now), nullptr);
  const size_t types = driver.engine().cluster().types().size();
  driver.declare = [](AcceleratorInfo& info) { info.type = "h200"; };
  driver.JoinServer("other", 1);
  ASSERT_GT(driver.engine().cluster().types().size(), types);
  EXPECT_EQ(views.Advance(driver.now), nullptr);
  const auto view = MakeView(views, driver.now);
  EXPECT_THAT(List(*view, ""), ElementsAre(1, 2));
}

TEST(QueueView, ALineThatWasPlannedAgainMeanwhileIsNotKept) {
  EngineDriver driver(1);
  driver.Submit("a");
  driver.Submit("b");
  QueueViews views(driver.engine(), kOneByOne);
  EXPECT_EQ(views.Advance(driver.now), nullptr);
  views.NotePlan();
  EXPECT_NE(MakeView(views, driver.now)->line, nullptr);
  EXPECT_EQ(views.line(), nullptr);
  const auto next = MakeView(views, driver.now);
  EXPECT_EQ(views.line(), next->line);
  // Which later views share.
  EXPECT_EQ(MakeView(views, driver.now)->line, next->line);
}

TEST(QueueView, CountsAreMadeInSlicesToo) {
  EngineDriver driver(1);
  for (int i = 0; i < 200; ++i) driver.Submit(StrCat("job-", i));
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  QueueViews views(driver.engine());
  while (!views.CountSome(driver.now)) EXPECT_TRUE(views.is_counting());
  EXPECT_FALSE(views.is_counting());
  EXPECT_EQ(views.counts(), CountStates(driver.engine().jobs()));
}

TEST(QueueView, JobsThatHaveEndedAreCopiedOnce) {
  EngineDriver driver(1);
  driver.Submit("a");
  driver.Submit("b");
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  const JobId job(1);
  if (driver.engine().jobs().at(job).AnyLive()) driver.Gone(driver.Key(job), 0);
  QueueViews views(driver.engine());
  const auto before = MakeView(views, driver.now);
  driver.At(driver.now + 10);
  const auto after = MakeView(views, driver.now);
  EXPECT_EQ(before->jobs[0], after->jobs[0]);
  EXPECT_NE(before->jobs[1], after->jobs[1]);
  EXPECT_EQ(before->jobs[1]->facts, after->jobs[1]->facts);
}

// A listing between the cancellation and the end of the last process shows that
// the job is ending, and the next one that it has ended.
TEST(QueueView, ACancelledJobIsShownToEndOnlyUntilItsProcessHas) {
  EngineDriver driver(1);
  const JobId job = driver.Submit("a");
  driver.Run(job);
  QueueViews views(driver.engine());
  driver.Step(event::JobCommanded{job, CommandKind::kCancel});
  ASSERT_TRUE(driver.engine().jobs().at(job).AnyLive());
  EXPECT_EQ(MakeView(views, driver.now)->jobs[0]->state, "CG");
  driver.Gone(driver.Key(job), 0);
  const auto after = MakeView(views, driver.now);
  EXPECT_EQ(after->jobs[0]->state, "CA");
  EXPECT_THAT(after->jobs[0]->held, IsEmpty());
  EXPECT_EQ(MakeView(views, driver.now)->jobs[0], after->jobs[0]);
}

TEST(JsonText, IsWhatTheLibraryReads) {
  JsonText text;
  text.Begin('{');
  text.Field("plain", std::string("a b"));
  text.Field("quoted", std::string("a\"b\\\n\xc3\xa4"));
  text.Field("no text", std::string("\xff"));
  text.Field("third", 1.0 / 3);
  text.Field("tiny", 1e-300);
  text.Field("not a number", std::nan(""));
  text.Field("whole", uint64_t{1} << 63);
  text.Field("below", -7);
  text.Field("yes", true);
  text.Field("nothing", std::optional<int>());
  text.Field("list", std::vector<double>{1.5, 2});
  text.Field("empty", Named<double>());
  text.Field("na\"me", 2);
  text.End('}');
  const json read = json::parse(text.Take());
  EXPECT_EQ(read["plain"], "a b");
  EXPECT_EQ(read["quoted"], "a\"b\\\n\xc3\xa4");
  EXPECT_EQ(read["no text"], "\xef\xbf\xbd");
  EXPECT_EQ(read["third"].get<double>(), 1.0 / 3);
  EXPECT_EQ(read["tiny"].get<double>(), 1e-300);
  EXPECT_TRUE(read["not a number"].is_null());
  EXPECT_EQ(read["whole"].get<uint64_t>(), uint64_t{1} << 63);
  EXPECT_EQ(read["below"], -7);
  EXPECT_EQ(read["yes"], true);
  EXPECT_TRUE(read["nothing"].is_null());
  EXPECT_EQ(read["list"], json::parse("[1.5,2]"));
  EXPECT_EQ(read["empty"], json::object());
  EXPECT_EQ(read["na\"me"], 2);
}

}  // namespace
}  // namespace gavel
