// Words that are typed in many ways.
#include "train/typing.h"

#include <gtest/gtest.h>

namespace duet::test {
namespace {

TEST(Typing, BooleansInEveryUsualForm) {
  for (const char* yes : {"true", "True", "TRUE", "on", "On", "yes", "1"}) {
    EXPECT_EQ(parse_boolean(yes), true) << yes;
  }
  for (const char* no : {"false", "False", "off", "NO", "0"}) {
    EXPECT_EQ(parse_boolean(no), false) << no;
  }
  for (const char* other : {"", "2", "truee", "run.toml", "-1", "o"}) {
    EXPECT_EQ(parse_boolean(other), std::nullopt) << other;
  }
}

TEST(Typing, DashesThatAreNoHyphens) {
  EXPECT_EQ(name_after_dash("\u2013data"), "data");
  EXPECT_EQ(name_after_dash("\u2014\u2014n_layer=3"), "n_layer=3");
  EXPECT_EQ(name_after_dash("-\u2212seed"), "seed");
  for (const char* plain : {"", "-", "--data", "data", "da\u2013ta", "caf\u00e9"}) {
    EXPECT_EQ(name_after_dash(plain), std::nullopt) << plain;
    EXPECT_EQ(dash_words(plain), "") << plain;
  }
  EXPECT_EQ(dash_words("\u2014data"), "begins with an em dash (U+2014)");
  EXPECT_EQ(minus_hint("\u22121"), "; it begins with a minus sign (U+2212), write -1");
  EXPECT_EQ(minus_hint("-1"), "");
}

}  // namespace
}  // namespace duet::test
