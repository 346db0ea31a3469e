#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "runtime/transport/curve.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class KeyFile : public Test {
 protected:
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    chmod(Path(name).c_str(), 0600);
    return Path(name);
  }

  TemporaryFolder folder_;
};

// On a command line it is a word of its own.
TEST(CurveKeys, APublicKeyBeginsWithALetterOrADigit) {
  for (int i = 0; i < 200; ++i) {
    const absl::StatusOr<CurveKeyPair> keys = NewCurveKeyPair();
    ASSERT_OK(keys);
    EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(keys->public_key[0])))
        << keys->public_key;
  }
}

TEST_F(KeyFile, IsReadAsItWasWritten) {
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, NewCurveKeyPair());
  EXPECT_TRUE(IsCurveKey(keys.public_key));
  EXPECT_TRUE(IsCurveKey(keys.secret_key));
  ASSERT_OK(WriteKeyFile(Path("a.key"), keys));
  struct stat info {};
  ASSERT_EQ(stat(Path("a.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair read, ReadKeyFile(Path("a.key")));
  EXPECT_EQ(read.public_key, keys.public_key);
  EXPECT_EQ(read.secret_key, keys.secret_key);
}

TEST_F(KeyFile, EachPairIsAnother) {
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair first, NewCurveKeyPair());
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair second, NewCurveKeyPair());
  EXPECT_NE(first.public_key, second.public_key);
  EXPECT_NE(first.secret_key, second.secret_key);
}

TEST_F(KeyFile, IsNeverOverwrittenAndNoLinkIsFollowed) {
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, NewCurveKeyPair());
  ASSERT_OK(WriteKeyFile(Path("a.key"), keys));
  EXPECT_THAT(WriteKeyFile(Path("a.key"), keys),
              StatusIs(kAlreadyExists, "is there already"));
  ASSERT_EQ(symlink(Path("elsewhere").c_str(), Path("b.key").c_str()), 0);
  EXPECT_THAT(WriteKeyFile(Path("b.key"), keys),
              StatusIs(kAlreadyExists, "b.key"));
  EXPECT_FALSE(std::filesystem::exists(Path("elsewhere")));
}

TEST_F(KeyFile, ThatOthersMayUseIsRefusedWithTheRemedy) {
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, NewCurveKeyPair());
  ASSERT_OK(WriteKeyFile(Path("a.key"), keys));
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601, 0644}) {
    ASSERT_EQ(chmod(Path("a.key").c_str(), mode), 0);
    EXPECT_THAT(ReadKeyFile(Path("a.key")).status(),
                StatusIs(kPermissionDenied, "chmod 600"))
        << mode;
  }
  ASSERT_EQ(chmod(Path("a.key").c_str(), 0400), 0);
  EXPECT_OK(ReadKeyFile(Path("a.key")).status());
}

TEST_F(KeyFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, NewCurveKeyPair());
  ASSERT_OK(WriteKeyFile(Path("a.key"), keys));
  ASSERT_EQ(chown(Path("a.key").c_str(), 12345, 12345), 0);
  EXPECT_THAT(ReadKeyFile(Path("a.key")).status(),
              StatusIs(kPermissionDenied, "belongs to user 12345"));
}

TEST_F(KeyFile, ThatIsNoneIsRefusedAndNothingOfItIsTold) {
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, NewCurveKeyPair());
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair other, NewCurveKeyPair());
  const std::string half = "public_key = " + keys.public_key + "\n";
  const std::string mixed = half + "secret_key = " + other.secret_key + "\n";
  const std::string cut =
      half + "secret_key = " + keys.secret_key.substr(1) + "\n";
  for (const std::string& text : {std::string(), std::string("rubbish"), half,
                                  mixed, cut, std::string(1 << 20, '=')}) {
    const absl::Status status = ReadKeyFile(Write("a.key", text)).status();
    EXPECT_THAT(status, IsInvalid("gavel keygen"));
    EXPECT_EQ(status.message().find(other.secret_key), std::string::npos);
    EXPECT_EQ(status.message().find(keys.secret_key.substr(1)),
              std::string::npos);
  }
  EXPECT_THAT(ReadKeyFile(Path("none")).status(),
              StatusIs(kNotFound, "gavel keygen"));
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(ReadKeyFile(Path("fifo")).status(), IsInvalid("not a file"));
}

}  // namespace
}  // namespace gavel
