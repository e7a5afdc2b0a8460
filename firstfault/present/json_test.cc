// JSON that every parser takes, whatever the names and numbers are.
#include "firstfault/present/json.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "firstfault/reason/engine.h"
#include "firstfault/reason/mechanisms/hand_made.h"

namespace firstfault::present {
namespace {

using nlohmann::json;
using namespace reason::hand_made;

Origin origin() {
  Origin origin;
  origin.step = 37;
  origin.op_number = 412;
  origin.op = "aten::log";
  origin.module = "head";
  origin.sample = 2;
  origin.stack = {{"train.py", 58, "loss"}};
  origin.evidence = forward("aten::log", kNegInf, {with_range(tensor("self", 0), 0, 0.93, 131)});
  origin.evidence.output.neg_inf = 131;
  origin.outcome = Outcome::fault;
  origin.sink = "loss";
  origin.path = {{412, "aten::log", "head", Phase::forward}};
  reason::explain(origin);
  return origin;
}

TEST(Json, AnOriginReadsBackAsItWas) {
  const json parsed = json::parse(to_json(origin()));
  EXPECT_EQ(parsed["schema"], 1);
  EXPECT_EQ(parsed["type"], "origin");
  EXPECT_EQ(parsed["step"], 37);
  EXPECT_EQ(parsed["phase"], "forward");
  EXPECT_EQ(parsed["kind"], "-Inf");
  EXPECT_EQ(parsed["counts"], json({{"nan", 0}, {"pos_inf", 0}, {"neg_inf", 131}}));
  EXPECT_EQ(parsed["index"], json({2, 17}));
  EXPECT_EQ(parsed["sample"], 2);
  EXPECT_EQ(parsed["file"], "train.py");
  EXPECT_EQ(parsed["line"], 58);
  EXPECT_EQ(parsed["mechanism"], "log_of_nonpositive");
  EXPECT_EQ(parsed["outcome"], "fault");
  EXPECT_EQ(parsed["sink"], "loss");
  EXPECT_EQ(parsed["path"][0]["op"], "aten::log");
  EXPECT_EQ(parsed["operands"][0]["value"], 0.0);
  EXPECT_EQ(parsed["operands"][0]["max"], 0.93);
  EXPECT_EQ(parsed["operands"][0]["state"], "finite");
}

TEST(Json, WhatIsAbsentIsNullOrEmptyAndTheKeysAreTheSame) {
  const json empty = json::parse(to_json(Origin{}));
  const json full = json::parse(to_json(origin()));
  for (const auto& [key, value] : full.items()) EXPECT_TRUE(empty.contains(key)) << key;
  for (const char* key : {"kind", "sample", "file", "line", "row", "sink"}) EXPECT_TRUE(empty[key].is_null()) << key;
  for (const char* key : {"operands", "path", "stack"}) EXPECT_EQ(empty[key], json::array()) << key;
}

TEST(Json, NaNAndInfAreStrings) {
  Origin one = origin();
  one.evidence.operands = {tensor("a", NAN), tensor("b", INFINITY), tensor("c", -INFINITY), tensor("d", {})};
  const json operands = json::parse(to_json(one))["operands"];
  EXPECT_EQ(operands[0]["value"], "nan");
  EXPECT_EQ(operands[1]["value"], "inf");
  EXPECT_EQ(operands[2]["value"], "-inf");
  EXPECT_TRUE(operands[3]["value"].is_null());
}

TEST(Json, BytesThatAreNotUtf8AreReplacedAndControlsEscaped) {
  Origin one = origin();
  one.module = "fc\xff\x1b[31m";
  const std::string text = to_json(one);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(json::parse(text)["module"], "fc\xEF\xBF\xBD\x1b[31m");
}

TEST(Json, ARowIsAnObject) {
  Origin one = origin();
  one.evidence.row = RowEvidence{1, 80, 80, 0, {2}};
  EXPECT_EQ(json::parse(to_json(one))["row"]["neg_inf"], 80);
}

TEST(Json, ADiagnosisAndARunHoldTheirOrigins) {
  Diagnosis diagnosis;
  diagnosis.target = "loss";
  diagnosis.counts.nan = 1;
  diagnosis.culprits = {origin()};
  const json parsed = json::parse(to_json(diagnosis));
  EXPECT_EQ(parsed["type"], "diagnosis");
  EXPECT_EQ(parsed["target"], "loss");
  EXPECT_EQ(parsed["culprits"][0]["op"], "aten::log");
  firstfault::Run run;
  run.steps = 2;
  run.origins = {origin()};
  run.uninspected = {{"dtype float8_e4m3fn", 3}};
  run.warnings = {"cap reached"};
  const json whole = json::parse(to_json(run));
  EXPECT_EQ(whole["type"], "run");
  EXPECT_EQ(whole["origins"].size(), 1U);
  EXPECT_EQ(whole["uninspected"][0]["tensors"], 3);
  EXPECT_EQ(whole["warnings"][0], "cap reached");
}

TEST(Json, IndentMakesLines) {
  EXPECT_EQ(to_json(origin()).find('\n'), std::string::npos);
  EXPECT_NE(to_json(origin(), 2).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace firstfault::present
