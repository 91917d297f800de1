// The page and the trace of a profile, as text; tests/tools/profile_page_test.py opens the page.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/train/profile_example.h"
#include "train/html.h"

namespace duet::test {
namespace {

using Json = nlohmann::json;

// The text between the first `begin` and the next `end`.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from) - from - begin.size());
}

std::size_t times(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Html, JsonInAScriptReadsBackAndEndsNothing) {
  const Json json = {{kHostile, "<!--<script>"}, {"</SCRIPT>", "\\<"}};
  const std::string text = json_in_script(json.dump());
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(Json::parse(text), json);
}

TEST(ProfilePage, HoldsTheJsonAndNeedsNothingElse) {
  for (const bool planned : {false, true}) {
    const Profile profile = example_profile(planned);
    const std::string page = profile_html(profile);
    const std::string json =
        between(page, "<script id=\"profile-data\" type=\"application/json\">", "</script>");
    EXPECT_EQ(Json::parse(json), Json::parse(profile_json(profile)));
    EXPECT_EQ(times(page, "<script"), 2U);
    EXPECT_EQ(times(page, "</script>"), 2U);
    EXPECT_EQ(times(page, "owned"), times(json, "owned"));
    for (const char* word : {"http:", "https:", "src=", "@import", "url(", "fetch(", "import("}) {
      EXPECT_EQ(page.find(word), std::string::npos) << word;
    }
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  }
}

// The script names elements by id: each must exist in the frame, once.
TEST(ProfilePage, TheScriptFindsItsElements) {
  const std::string page = profile_html(example_profile());
  std::size_t found = 0;
  for (std::size_t at = 0; (at = page.find("byId(\"", at)) != std::string::npos; ++found) {
    at += 6;
    const std::string id = page.substr(at, page.find('"', at) - at);
    EXPECT_EQ(times(page, " id=\"" + id + "\""), 1U) << id;
  }
  EXPECT_GT(found, 10U);
}

// Slices that nest, counters that reach the peak, and time that only goes forward.
void check_trace(const Profile& profile) {
  const Json trace = Json::parse(profile_trace(profile));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  double now = 0;
  std::uint64_t live = 0, reserved = 0;
  std::map<int, std::vector<double>> ends;  // of the open slices, per thread
  std::map<std::string, int> seen;
  for (const Json& e : trace["traceEvents"]) {
    const std::string type = e["ph"];
    ++seen[type];
    if (type == "M") continue;
    const double ts = e["ts"];
    EXPECT_GE(ts, now);
    now = ts;
    if (type == "X") {
      const double end = ts + e["dur"].get<double>();
      EXPECT_GT(end, ts);
      auto& open = ends[e["tid"].get<int>()];
      while (!open.empty() && open.back() <= ts + 1e-6) open.pop_back();
      EXPECT_LE(end, open.empty() ? end : open.back() + 1e-6) << e;
      open.push_back(end);
    } else if (type == "C" && e["name"] == "live bytes") {
      EXPECT_EQ(e["args"].size(), kMemoryKinds);
      std::uint64_t sum = 0;
      for (const Json& bytes : e["args"]) sum += bytes.get<std::uint64_t>();
      live = std::max(live, sum);
    } else if (type == "C") {
      reserved = std::max(reserved, e["args"]["reserved"].get<std::uint64_t>());
    } else {
      EXPECT_EQ(e["args"]["live bytes"], profile.peak_bytes);
    }
  }
  EXPECT_EQ(live, profile.peak_bytes);
  EXPECT_EQ(reserved, profile.peak_reserved);
  EXPECT_EQ(seen["M"], 3);
  EXPECT_EQ(seen["i"], 1);
}

TEST(ProfileTrace, NestsCountsAndGoesForward) {
  check_trace(example_profile(false));
  check_trace(example_profile(true));
}

TEST(ProfileTrace, AScopeIsOneSliceAroundTheScopesInsideIt) {
  const Json trace = Json::parse(profile_trace(example_profile()));
  std::vector<std::string> slices;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] == "X") {
      slices.push_back(concat(e["tid"].get<int>(), " ", e["name"].get<std::string>(), " ",
                              e["ts"].get<double>(), "+", e["dur"].get<double>()));
    }
  }
  const std::string inner = "blocks.0." + kHostile;
  const std::vector<std::string> expected = {
      "1 forward 0+1000",         "2 blocks 0+800",    "2 blocks.0 0+800",
      "2 " + inner + " 250+350",  "2 loss 800+200",    "1 backward 1000+1500",
      "2 loss 1000+750",          "2 blocks 1750+750", "2 blocks.0 1750+750",
      "2 " + inner + " 1750+450", "1 update 2500+500", "2 loss 2600+400"};
  EXPECT_EQ(slices, expected);
}

TEST(ProfileTrace, WithoutEvents) {
  Profile empty;
  empty.rows.emplace_back();
  EXPECT_EQ(Json::parse(profile_trace(empty))["traceEvents"].size(), 3U);
}

}  // namespace
}  // namespace duet::test
