#include "core/locality.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(Locality, NamesOfTypesAtALevelAreReadBack) {
  EXPECT_EQ(TypeNameAt("v100", Locality::kServer), "v100");
  EXPECT_EQ(TypeNameAt("v100", Locality::kCluster), "v100_unconsolidated");
  for (const Locality level : kAllLocalities) {
    const std::string name = TypeNameAt("my-gpu", level);
    const auto at = SplitTypeName(name);
    ASSERT_TRUE(at.has_value()) << name;
    EXPECT_EQ(at->type, "my-gpu");
    EXPECT_EQ(at->level, level);
    EXPECT_EQ(FindLocality(LocalityName(level)), level);
  }
  EXPECT_EQ(FindLocality("pod"), std::nullopt);
}

TEST(Locality, ANameWithAnUnknownLevelIsNone) {
  for (const char* name : {"v100@pod", "v100@", "@rack", "v100@rack@group",
                           "v100@server", "v100@rack_unconsolidated"}) {
    EXPECT_FALSE(SplitTypeName(name).has_value()) << name;
  }
  // Gavel's suffix alone is a type of that name, as it always was.
  EXPECT_EQ(SplitTypeName("_unconsolidated")->level, Locality::kServer);
}

}  // namespace
}  // namespace gavel
