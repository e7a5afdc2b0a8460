// Names from outside never reach a terminal as commands.
#include "firstfault/base/names.h"

#include <gtest/gtest.h>

namespace firstfault {
namespace {

TEST(Printable, LeavesOrdinaryNamesAlone) {
  EXPECT_EQ(printable("encoder.layers.0.fc"), "encoder.layers.0.fc");
  EXPECT_EQ(printable("größe_層_🙂"), "größe_層_🙂");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesTerminalSequencesAndLineBreaks) {
  EXPECT_EQ(printable("a\x1b[31mred\nb\t"), "a\\x1b[31mred\\nb\\t");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
}

TEST(Printable, EscapesEightBitControlsAndBidirectionalOverrides) {
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("fc\xe2\x80\xae"
                      "gnp"),
            "fc\\u202egnp");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(printable("x\xe2\x82"), "x\\xe2\\x82");         // cut off
}

}  // namespace
}  // namespace firstfault
