#include "coordinator/server/audit_log.h"

#include <fstream>

#include "core/text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// The lines of the log that name `who`.
int LinesOf(const std::string& path, const std::string& who) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    count += line.find("\"who\":\"" + who + "\"") != std::string::npos;
  }
  return count;
}

TEST(AuditLog, NobodysRefusalsHideAnothers) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/audit.log";
  ASSERT_OK_AND_ASSIGN(AuditLog opened, AuditLog::Open(path));
  auto audit = std::make_optional(std::move(opened));
  // Lines are there once it has ended.
  const auto refuse = [&](Time now, const std::string& who) {
    audit->Refusal(now, {who, "worker", "", "LeaseRequest", "", "refused"});
  };
  for (int i = 0; i < 10'000; ++i) refuse(10, "mallory");
  refuse(11, "alice");
  // Many keys together fill no disk, and each is still named.
  for (int key = 0; key < 100; ++key) {
    for (int i = 0; i < 60; ++i) refuse(12, StrCat("key-", key));
  }
  refuse(13, "carol");
  refuse(13, "carol");
  refuse(80, "mallory");
  audit.reset();
  EXPECT_EQ(LinesOf(path, "mallory"), AuditLog::kRefusalsPerMinuteMax + 1);
  EXPECT_EQ(LinesOf(path, "alice"), 1);
  EXPECT_EQ(LinesOf(path, "carol"), 1);
  EXPECT_EQ(LinesOf(path, "key-99"), 1);
}

}  // namespace
}  // namespace gavel
