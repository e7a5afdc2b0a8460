// The HTML form: one sentence, then the facts, and nothing of the program's names as markup.
#include "firstfault/present/html.h"

#include <gtest/gtest.h>

namespace firstfault::present {
namespace {

Origin log_of_zero() {
  Origin origin;
  origin.op = "aten::log";
  origin.module = "<script>alert('x')</script>&\"";
  origin.evidence.first = kNegInf;
  origin.because = "log of 0 is -Inf";
  origin.mechanism = "log_of_nonpositive";
  return origin;
}

TEST(Html, BeginsWithTheSentenceAndGoesOnWithTheFacts) {
  const std::string html = to_html(log_of_zero());
  EXPECT_EQ(html.find("<div class=\"firstfault\"><p><strong>-Inf first appeared in aten::log"), 0U);
  const std::size_t facts = html.find("<pre");
  ASSERT_NE(facts, std::string::npos);
  EXPECT_GT(html.find("log of 0 is -Inf"), facts);
  EXPECT_EQ(html.substr(html.size() - 12), "</pre></div>");
}

TEST(Html, LetsNoMarkupOfANameThrough) {
  auto run = firstfault::Run{};  // GoogleTest has a Run of its own
  run.origins.push_back(log_of_zero());
  run.origins.back().outcome = Outcome::fault;
  for (const std::string& html : {to_html(log_of_zero()), to_html(run)}) {
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;"), std::string::npos);
  }
}

TEST(Html, OfAHealthyTensorIsOneSentence) {
  Diagnosis diagnosis;
  diagnosis.target = "loss";
  EXPECT_EQ(to_html(diagnosis).find("<pre"), std::string::npos);
}

}  // namespace
}  // namespace firstfault::present
