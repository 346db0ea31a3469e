// Programs that use the public headers wrongly: what g++ says has the remedy in
// one sentence, and few lines around it.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// About seven of these say where it is.
constexpr int kLinesMax = 12;

struct Mistake {
  std::string name;
  std::string statement;
  std::string sentence;
};
class HeaderMistake : public TestWithParam<Mistake> {};

TEST_P(HeaderMistake, IsToldInOneSentence) {
  const TemporaryFolder folder;
  folder.Write(
      "program.cc",
      StrCat("#include \"gavel/data_loader.h\"\n"
             "#include \"gavel/iterator.h\"\n"
             "struct Data {\n"
             "  at::Tensor get(size_t) const;\n"
             "  size_t size() const;\n"
             "};\n"
             "int main() {\n"
             "  auto session = gavel::Session::FromEnvironment();\n"
             "  auto loader =\n"
             "      std::make_unique<gavel::DataLoader<Data>>(Data());\n",
             GetParam().statement, "\n}\n"));
  const std::string compile = StrCat(
      "CPLUS_INCLUDE_PATH='", GAVEL_TORCH_HEADERS, "' '", GAVEL_CXX_COMPILER,
      "' -std=c++17 -fsyntax-only", " -fdiagnostics-color=never -I'",
      GAVEL_PUBLIC_HEADERS, "' '", folder.PathOf("program.cc"), "' 2>'",
      folder.PathOf("errors"), "'");
  EXPECT_NE(std::system(compile.c_str()), 0);
  const std::string errors = folder.Read("errors");
  EXPECT_THAT(errors, HasSubstr(GetParam().sentence));
  EXPECT_LE(std::ranges::count(errors, '\n'), kLinesMax) << errors;
}

INSTANTIATE_TEST_SUITE_P(
    Headers, HeaderMistake,
    Values(Mistake{"TrackedVector",
                   "std::vector<float> weights;\n"
                   "session->Track(\"weights\", weights);",
                   "this type can't be tracked as it is: Track() takes"},
           Mistake{"SessionPointer",
                   "for (auto& batch : gavel::Iterator(session, *loader)) {}",
                   "gavel::Iterator takes the session, not a pointer to it"},
           Mistake{"LoaderPointer",
                   "for (auto& batch : gavel::Iterator(*session, loader)) {}",
                   "dereference a pointer to a loader"}),
    [](const auto& mistake) { return mistake.param.name; });

}  // namespace
}  // namespace gavel::testing
