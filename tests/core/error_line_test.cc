#include "core/error_line.h"

#include "core/messages.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(ErrorLine, IsTheLastThatSpeaksOfAnError) {
  EXPECT_EQ(LastErrorLine("epoch 1\nTraceback (most recent call last):\n"
                          "  File \"a.py\", line 3\nValueError: bad shape\n"),
            "ValueError: bad shape");
  EXPECT_EQ(LastErrorLine("error: one\nerror: two\nbye\n"), "error: two");
  EXPECT_EQ(LastErrorLine("loading\nno more disks\n\n"), "no more disks");
  EXPECT_EQ(LastErrorLine(""), "");
}

// LibTorch's exceptions end with a stack trace of functions of any name.
TEST(ErrorLine, IsNoFrameOfAStackTrace) {
  EXPECT_EQ(LastErrorLine("terminate called\n  what():  CUDA out of memory\n"
                          "Exception raised from malloc at x.cpp:1\n"
                          "frame #0: c10::Error::Error() (0x1 in libc10.so)\n"
                          "frame #1: main (0x2 in ./train)\n"),
            "what():  CUDA out of memory");
}

TEST(ErrorLine, IsPrintableUtf8OfBoundedLength) {
  EXPECT_EQ(
      PrintableLine("\x1b[31m  err\x01or\x1b[0m: caf\xc3\xa9 \xff\xc3\t", 100),
      "error: caf\xc3\xa9 ??");
  EXPECT_EQ(PrintableLine("\x1b]0;title\x07ok", 100), "ok");
  // Overlong, a surrogate, beyond Unicode; C1 control, right-to-left override.
  EXPECT_EQ(PrintableLine("\xc0\xaf|\xed\xa0\x80|\xf5\x80\x80\x80", 100),
            "??|???|????");
  EXPECT_EQ(PrintableLine("a\xc2\x9b"
                          "b\xe2\x80\xae"
                          "c",
                          100),
            "abc");
  const std::string line =
      LastErrorLine("error " + std::string(5000, 'x') + "\n");
  EXPECT_EQ(line.size(), kErrorLineCharactersMax);
  std::string accents;
  for (int i = 0; i < 300; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(LastErrorLine(accents).size(), 2 * kErrorLineCharactersMax);
}

// A progress bar rewrites its line.
TEST(ErrorLine, ReturnsOfTheCarriageEndLinesToo) {
  EXPECT_EQ(LastErrorLine("10 %\r20 %\r30 %"), "30 %");
}

TEST(Visible, NothingOfAProgramsOutputReachesTheTerminalAsACommand) {
  EXPECT_EQ(Visible("loss 0.5\n\tok caf\xc3\xa9\n"),
            "loss 0.5\n\tok caf\xc3\xa9\n");
  EXPECT_EQ(Visible("\x1b]0;title\x07\x1b[2J"), "\\x1b]0;title\\x07\\x1b[2J");
  EXPECT_EQ(Visible("10 %\r20 %\x08\x7f"), "10 %\\x0d20 %\\x08\\x7f");
  // C1 controls as a character and as a byte, and a change of direction.
  EXPECT_EQ(Visible("\xc2\x9b"
                    "2J\x9b"
                    "2J\xe2\x80\xae"),
            "\\xc2\\x9b2J\\x9b2J\\xe2\\x80\\xae");
}

TEST(Visible, ACharacterThatIsCutWaitsForItsRest) {
  std::string output = "caf\xc3";
  EXPECT_EQ(TakeVisible(&output, false), "caf");
  output += "\xa9\xe2\x82";
  EXPECT_EQ(TakeVisible(&output, false), "\xc3\xa9");
  EXPECT_EQ(TakeVisible(&output, true), "\\xe2\\x82");
  EXPECT_EQ(output, "");
  // Bytes that can't begin a character do not wait.
  output = "\xff\xc0";
  EXPECT_EQ(TakeVisible(&output, false), "\\xff\\xc0");
}

}  // namespace
}  // namespace gavel
