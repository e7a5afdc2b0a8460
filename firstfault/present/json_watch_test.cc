// The JSON of a watched run: what W6 names is there, and what is absent is null.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "firstfault/present/hand_made_run.h"
#include "firstfault/present/json.h"

namespace firstfault::present {
namespace {

using nlohmann::json;
using namespace hand_made;

TEST(HypothesisJson, ReadsBackAsItWas) {
  const json parsed = json::parse(to_json(lr_too_high()));
  EXPECT_EQ(parsed["schema"], 1);
  EXPECT_EQ(parsed["type"], "hypothesis");
  EXPECT_EQ(parsed["cause"], "lr_too_high");
  EXPECT_EQ(parsed["confidence"], 0.934);
  EXPECT_EQ(parsed["standing"], "inferred");
  EXPECT_EQ(parsed["step"], 14);
  EXPECT_EQ(parsed["onset_step"], 3);
  EXPECT_EQ(parsed["phase"], "optimizer");
  EXPECT_EQ(parsed["op"], "aten::addmm");
  EXPECT_EQ(parsed["module"], "model.fc1");
  EXPECT_EQ(parsed["param"], "fc1.weight");
  EXPECT_EQ(parsed["sample"], 5);
  EXPECT_EQ(parsed["file"], "train.py");
  EXPECT_EQ(parsed["line"], 58);
  EXPECT_EQ(parsed["evidence"][0],
            json({{"step", 3}, {"site", "fc1.weight"}, {"text", lr_too_high().evidence[0].text}}));
  EXPECT_TRUE(parsed["evidence"][1]["step"].is_null());
  EXPECT_TRUE(parsed["evidence"][1]["site"].is_null());
}

TEST(HypothesisJson, AbsentFieldsAreNullAndNoneIsMissing) {
  const json parsed = json::parse(to_json(Hypothesis{}));
  for (const char* key :
       {"onset_step", "phase", "op", "forward_op", "module", "param", "sample", "file", "line", "mechanism"})
    EXPECT_TRUE(parsed.at(key).is_null()) << key;
  const json full = json::parse(to_json(lr_too_high()));
  for (const auto& [key, value] : full.items()) EXPECT_TRUE(parsed.contains(key)) << key;
  EXPECT_EQ(parsed["evidence"], json::array());
}

TEST(HypothesisJson, StandingsAreNamedAsInTheCode) {
  Hypothesis one;
  one.standing = Standing::not_separable;
  EXPECT_EQ(json::parse(to_json(one))["standing"], "not_separable");
}

TEST(ExplanationJson, HoldsTheHypothesesAndTheTransitions) {
  const json parsed = json::parse(to_json(std::vector{lr_too_high()}, watched_run()));
  EXPECT_EQ(parsed["type"], "explanation");
  EXPECT_EQ(parsed["steps"], 20);
  EXPECT_EQ(parsed["state"], "died");
  EXPECT_EQ(parsed["hypotheses"][0]["cause"], "lr_too_high");
  EXPECT_EQ(parsed["transitions"][0]["site"], "fc1.weight");
}

TEST(TransitionJson, NamesItsSite) {
  const auto run = watched_run();
  const json parsed = json::parse(to_json(run.transitions[0], run.sites[0]));
  EXPECT_EQ(parsed["type"], "transition");
  EXPECT_EQ(parsed["step"], 12);
  EXPECT_EQ(parsed["site_index"], 0);
  EXPECT_EQ(parsed["site"], "fc1.weight");
  EXPECT_EQ(parsed["role"], "gradient");
  EXPECT_EQ(parsed["module"], "model.fc1");
  EXPECT_EQ(parsed["from_state"], "healthy");
  EXPECT_EQ(parsed["to_state"], "exploding");
  EXPECT_EQ(parsed["value"], 4200.25);
  EXPECT_EQ(parsed["baseline"], 0.3125);
  const Transition bad = {3, -1, Condition::healthy, Condition::non_finite, INFINITY, NAN, 1};
  const json other = json::parse(to_json(bad, Site{}));
  EXPECT_EQ(other["to_state"], "non_finite");
  EXPECT_EQ(other["value"], "inf");
  EXPECT_TRUE(other["baseline"].is_null());
  EXPECT_TRUE(other["site_index"].is_null());
}

TEST(RowJson, WhatWasNotMeasuredIsNullAndANaNLossIsNot) {
  StepRow row = watched_run().rows[1];
  const json parsed = json::parse(to_json(row));
  EXPECT_EQ(parsed["loss"], 31000.25);
  EXPECT_EQ(parsed["lr"], 0.5);
  EXPECT_TRUE(parsed["gradient_norm"].is_null());
  EXPECT_EQ(parsed["sites"][0]["rms"], 0.5);
  EXPECT_EQ(parsed["sites"][0]["nonfinite"], 0);
  EXPECT_TRUE(parsed["sites"][0]["absmax"].is_null());
  row.loss = NAN;
  row.loss_state = StepRow::Loss::nan;
  EXPECT_EQ(json::parse(to_json(row))["loss"], "nan");
  EXPECT_TRUE(json::parse(to_json(StepRow{}))["loss"].is_null());
  EXPECT_TRUE(json::parse(to_json(Health{}))["nonfinite"].is_null());
}

TEST(RunJson, OfAWatchedRunHasItsSitesRowsTransitionsFactsAndSetup) {
  auto run = watched_run();
  run.actions = {{.step = 3, .kind = GuardAction::Kind::skip, .fault = "loss", .reason = "the loss is NaN"}};
  run.facts = {{.kind = FactKind::clipped, .count = 3, .numbers = {{"norm", 12.5}}}};
  run.setup.modules = {{"model.fc1", "Linear", 32}};
  run.setup.optimizers = {{"Adam", {{{"lr", 0.5}}}}};
  const json parsed = json::parse(to_json(run));
  EXPECT_EQ(parsed["state"], "died");
  EXPECT_EQ(parsed["sites"][0]["shape"], json({8, 4}));
  EXPECT_EQ(parsed["sites"][0]["order"], 0);
  EXPECT_TRUE(parsed["sites"][1]["order"].is_null());
  EXPECT_EQ(parsed["rows"].size(), 2U);
  EXPECT_FALSE(parsed["rows"][1].contains("sites"));
  EXPECT_EQ(parsed["transitions"].size(), 1U);
  EXPECT_EQ(parsed["facts"][0]["kind"], "clipped");
  EXPECT_EQ(parsed["facts"][0]["numbers"]["norm"], 12.5);
  EXPECT_EQ(parsed["setup"]["modules"][0]["type"], "Linear");
  EXPECT_EQ(parsed["setup"]["optimizers"][0]["groups"][0]["lr"], 0.5);
  EXPECT_EQ(parsed["actions"][0]["action"], "skip");
  EXPECT_EQ(parsed["actions"][0]["reason"], "the loss is NaN");
  EXPECT_TRUE(parsed["actions"][0]["norm"].is_null());
  for (const char* key : {"state", "setup", "sites", "rows", "transitions", "facts", "actions"})
    EXPECT_TRUE(json::parse(to_json(firstfault::Run{})).contains(key)) << key;
}

}  // namespace
}  // namespace firstfault::present
