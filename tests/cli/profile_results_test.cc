// The results of `gavel profile`, and the tables that it makes of them.
#include <cmath>
#include <random>

#include "coordinator/cli/profile_run.h"
#include "coordinator/workload/throughput_table.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

ProfileFigure Measured(double steps_per_s) {
  ProfileFigure figure;
  figure.steps_per_s = steps_per_s;
  figure.half_width = steps_per_s / 100;
  figure.samples = 20;
  figure.seconds = 20.5;
  return figure;
}

ProfileResults Sample() {
  ProfileResults results;
  results.Set({"LM", 1, "v100", Locality::kServer, ""}, Measured(10.1));
  results.Set({"LM", 2, "v100", Locality::kServer, ""}, Measured(19));
  results.Set({"LM", 2, "v100", Locality::kCluster, ""}, Measured(9));
  results.Set({"A3C", 1, "v100", Locality::kServer, ""}, Measured(3));
  results.Set({"A3C", 1, "v100", Locality::kServer, "LM"}, Measured(2));
  results.Set({"LM", 1, "v100", Locality::kServer, "A3C"}, Measured(8));
  results.Set({"LM", 1, "v100", Locality::kServer, "LM"}, Measured(5));
  ProfileFigure none;
  none.steps_per_s = 0;
  none.note = "out of memory";
  results.Set({"LM", 1, "k80", Locality::kServer, ""}, none);
  ProfileFigure failed;
  failed.note = "its program ended, too early\nsomehow";
  results.Set({"A3C", 1, "k80", Locality::kServer, ""}, failed);
  return results;
}

TEST(ProfileResults, TheTableReadsBackAsItWas) {
  const std::string csv = Sample().ToCsv();
  ASSERT_OK_AND_ASSIGN(const ProfileResults again,
                       ProfileResults::Parse(csv, "profile.csv"));
  EXPECT_EQ(again.ToCsv(), csv);
  EXPECT_EQ(again.figures().size(), Sample().figures().size());
  const ProfileFigure* figure =
      again.Find({"LM", 1, "v100", Locality::kServer, ""});
  ASSERT_NE(figure, nullptr);
  EXPECT_EQ(figure->steps_per_s, 10.1);
  EXPECT_EQ(figure->samples, 20);
  // A failed measurement counts as unknown, so that it is tried again.
  EXPECT_EQ(again.Find({"A3C", 1, "k80", Locality::kServer, ""}), nullptr);
  // That a workload can't run is known.
  EXPECT_NE(again.Find({"LM", 1, "k80", Locality::kServer, ""}), nullptr);
}

TEST(ProfileResults, GavelsFormSaysTheSame) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable made, Sample().ToTable());
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable read,
      ThroughputTable::Parse(WriteThroughputs(made.ToFigures()), "made"));
  EXPECT_THAT(read.types(), ElementsAre("k80", "v100"));
  const size_t v100 = *read.FindType("v100");
  const auto lm = read.FindRow("LM", 1);
  const auto a3c = read.FindRow("A3C", 1);
  const auto gang = read.FindRow("LM", 2);
  ASSERT_TRUE(lm && a3c && gang);
  EXPECT_EQ(read.Alone(*lm, v100), 10.1);
  EXPECT_EQ(read.Alone(*gang, v100), 19);
  EXPECT_EQ(read.Alone(*gang, v100, Locality::kCluster), 9);
  EXPECT_EQ(read.Together(*lm, *a3c, v100), std::pair(8.0, 2.0));
  EXPECT_EQ(read.Together(*a3c, *lm, v100), std::pair(2.0, 8.0));
  EXPECT_EQ(read.Together(*lm, *lm, v100), std::pair(5.0, 5.0));
  EXPECT_EQ(read.Alone(*lm, *read.FindType("k80")), 0);
  EXPECT_EQ(read.Alone(*a3c, *read.FindType("k80")), std::nullopt);
  EXPECT_FALSE(ProfileResults().ToTable().ok());
}

TEST(ProfileResults, WhatIsNoTableIsPointedAt) {
  const std::string titles = ProfileResults().ToCsv();
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {{"a,b\n", "t.csv:1: is no line of titles"},
                {titles + "LM,1,v100\n", "t.csv:2: has 3 cells"},
                {titles + "LM,x,v100,consolidated,,1,0,1,1,\n", "\"x\""},
                {titles + "LM,1,v100,beside,,1,0,1,1,\n", "\"beside\""},
                {titles + "LM,1,v100,consolidated,,-1,0,1,1,\n", "\"-1\""},
                {titles + "LM,1,v100,consolidated,,nan,0,1,1,\n", "\"nan\""},
                {titles + ",1,v100,consolidated,,1,0,1,1,\n", "no workload"}};
  for (const auto& one : kCases) {
    const auto parsed = ProfileResults::Parse(one.text, "t.csv");
    EXPECT_FALSE(parsed.ok()) << one.text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(one.message));
  }
}

TEST(FigureOf, IsTheMeanWithItsConfidence) {
  const ProfileFigure figure = FigureOf({{9, 1}, {10, 2}, {11, 1}});
  EXPECT_DOUBLE_EQ(figure.steps_per_s, 10);
  EXPECT_DOUBLE_EQ(figure.seconds, 4);
  EXPECT_EQ(figure.samples, 3);
  EXPECT_NEAR(figure.half_width, 4.303 / std::sqrt(3.0), 1e-9);
  EXPECT_LT(FigureOf({}).steps_per_s, 0);
  EXPECT_EQ(FigureOf({{5, 1}}).half_width, 0);
}

TEST(FigureOf, CoversTheTruthAboutNineteenTimesInTwenty) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(50, 3);
  int covered = 0;
  constexpr int kTrials = 2000;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<ProfileSample> samples;
    for (int k = 0; k < 8; ++k) samples.push_back({noise(random), 1});
    const ProfileFigure figure = FigureOf(samples);
    covered += std::abs(figure.steps_per_s - 50) <= figure.half_width ? 1 : 0;
  }
  EXPECT_NEAR(covered / static_cast<double>(kTrials), 0.95, 0.02);
}

// ---- workloads and cells

std::vector<ServerSpec> Servers() {
  std::vector<ServerSpec> servers(2);
  for (int i = 0; i < 2; ++i) {
    servers[i].name = i == 0 ? "one" : "two";
    for (int k = 0; k < 2; ++k) {
      AcceleratorInfo info;
      info.type = "cpu";
      info.uuid = servers[i].name + std::to_string(k);
      servers[i].accelerators.push_back(info);
    }
  }
  return servers;
}

TEST(Workloads, MakeCellsAloneSpreadAndInPairs) {
  ASSERT_OK_AND_ASSIGN(
      const auto workloads,
      ParseWorkloads("[[workload]]\ntype = \"a\"\ncommand = [\"./a\"]\n"
                     "scale_factors = [1, 2, 8]\n"
                     "[workload.environment]\nX = \"1\"\n"
                     "[[workload]]\ntype = \"b\"\ncommand = [\"./b\"]\n",
                     "w.toml"));
  ASSERT_EQ(workloads.size(), 2u);
  EXPECT_THAT(workloads[0].environment,
              ElementsAre(std::pair<std::string, std::string>("X", "1")));
  std::vector<std::string> left_out;
  const auto cells = CellsOf(workloads, Servers(), true, &left_out);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("scale factor 8 on cpu")));
  // On one accelerator: a, b, a+a, a+b, b+b. On two: a together, a spread, and
  // a beside itself.
  ASSERT_EQ(cells.size(), 8u);
  int spread = 0;
  for (const ProfileCell& cell : cells) {
    EXPECT_EQ(cell.places.size(), static_cast<size_t>(cell.scale_factor));
    if (cell.level != Locality::kCluster) continue;
    ++spread;
    EXPECT_EQ(cell.places[0].uuid, "one0");
    EXPECT_EQ(cell.places[1].uuid, "two0");
  }
  EXPECT_EQ(spread, 1);
  EXPECT_EQ(CellsOf(workloads, Servers(), false, &left_out).size(), 4u);
}

TEST(Workloads, OneServerHasNoSpreadGangs) {
  ASSERT_OK_AND_ASSIGN(
      const auto workloads,
      ParseWorkloads("[[workload]]\ntype = \"a\"\ncommand = [\"./a\"]\n"
                     "scale_factors = [2]\n",
                     "w.toml"));
  std::vector<ServerSpec> servers = Servers();
  servers.pop_back();
  std::vector<std::string> left_out;
  const auto cells = CellsOf(workloads, servers, false, &left_out);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].level, Locality::kServer);
  EXPECT_THAT(left_out, IsEmpty());
}

// Two racks; in the first one two servers with two groups of two each.
std::vector<ServerSpec> ServersOfRacks() {
  std::vector<ServerSpec> servers = {
      {"a", {}, "r1"}, {"b", {}, "r1"}, {"c", {}, "r2"}};
  for (ServerSpec& server : servers) {
    for (int i = 0; i < 4; ++i) {
      AcceleratorInfo& info = server.accelerators.emplace_back();
      info.type = "cpu";
      info.uuid = StrCat(server.name, i);
      info.group = StrCat(server.name, "-", i / 2);
    }
  }
  return servers;
}

std::map<Locality, std::string> PlacesOfGang(
    const std::vector<ServerSpec>& servers, int scale_factor) {
  const auto workloads =
      ParseWorkloads(StrCat("[[workload]]\ntype = \"a\"\ncommand = "
                            "[\"./a\"]\nscale_factors = [",
                            scale_factor, "]\n"),
                     "w.toml");
  EXPECT_OK(workloads);
  std::vector<std::string> left_out;
  std::map<Locality, std::string> places;
  for (const ProfileCell& cell :
       CellsOf(*workloads, servers, false, &left_out)) {
    for (const AcceleratorInfo& info : cell.places) {
      places[cell.level] += info.uuid;
    }
  }
  return places;
}

TEST(Workloads, AGangIsMeasuredAtEachLevelAndAtNoTighterOne) {
  EXPECT_THAT(PlacesOfGang(ServersOfRacks(), 2),
              ElementsAre(Pair(Locality::kGroup, "a0a1"),
                          Pair(Locality::kServer, "a0a2"),
                          Pair(Locality::kRack, "a0b0"),
                          Pair(Locality::kCluster, "a0c0")));
  EXPECT_THAT(PlacesOfGang(ServersOfRacks(), 4),
              ElementsAre(Pair(Locality::kServer, "a0a2a1a3"),
                          Pair(Locality::kRack, "a0b0a1b1"),
                          Pair(Locality::kCluster, "a0c0a1c1")));
  EXPECT_THAT(PlacesOfGang(ServersOfRacks(), 1),
              ElementsAre(Pair(Locality::kServer, "a0")));
}

TEST(Workloads, OneRackOrGroupIsMeasuredAsGavelsTwoLevels) {
  std::vector<ServerSpec> servers = ServersOfRacks();
  servers.pop_back();
  for (ServerSpec& server : servers) {
    for (AcceleratorInfo& info : server.accelerators) info.group = server.name;
  }
  EXPECT_THAT(PlacesOfGang(servers, 2),
              ElementsAre(Pair(Locality::kServer, "a0a1"),
                          Pair(Locality::kCluster, "a0b0")));
}

TEST(ProfileResults, KeepLevelsInTheTableAndInGavelsJson) {
  ProfileResults results;
  double steps_per_s = 40;
  for (const Locality level : kAllLocalities) {
    ProfileFigure figure;
    figure.steps_per_s = steps_per_s -= 5;
    results.Set({"VGG-16", 2, "v100", level, ""}, figure);
  }
  ASSERT_OK_AND_ASSIGN(const ProfileResults again,
                       ProfileResults::Parse(results.ToCsv(), "p.csv"));
  EXPECT_THAT(again.ToCsv(), HasSubstr("VGG-16,2,v100,rack,,25,"));
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table, again.ToTable());
  const std::string json = WriteThroughputs(table.ToFigures());
  ASSERT_OK_AND_ASSIGN(const ThroughputTable read,
                       ThroughputTable::Parse(json, "t.json"));
  const auto row = read.FindRow("VGG-16", 2);
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(read.Alone(*row, 0, Locality::kGroup), 35);
  EXPECT_EQ(read.Alone(*row, 0), 30);
  EXPECT_EQ(read.Alone(*row, 0, Locality::kRack), 25);
  EXPECT_EQ(read.Alone(*row, 0, Locality::kCluster), 20);
}

TEST(Workloads, MistakesArePointedAt) {
  const std::string good = "[[workload]]\ntype = \"a\"\ncommand = [\"./a\"]\n";
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {
      {"", "there is no workload"},
      {"[[workload]]\ntype = \"a\"\n", "command"},
      {"[[workload]]\ncommand = [\"a\"]\n", "type"},
      {"[[workload]]\ntype = \"a,b\"\ncommand = [\"a\"]\n", "without quotes"},
      {"[[workload]]\ntype = \"a\"\ncommand = []\n", "is empty"},
      {good + "scale_factors = [0]\n", "scale_factors"},
      {good + "scale_factors = [1, 1]\n", "scale_factors"},
      {good + "scale_factors = 2\n", "scale_factors"},
      {good + "scale_factor = 2\n", "scale_factor"},
      {good + "[workload.environment]\nscale_factors = \"1\"\n",
       "\"scale_factors\" belongs to [[workload]]"},
      {good + good, "twice"}};
  for (const auto& one : kCases) {
    const auto parsed = ParseWorkloads(one.text, "w.toml");
    EXPECT_FALSE(parsed.ok()) << one.text;
    EXPECT_THAT(std::string(parsed.status().message()),
                AllOf(HasSubstr("w.toml"), HasSubstr(one.message)));
  }
}

}  // namespace
}  // namespace gavel::testing
