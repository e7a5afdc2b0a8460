// Which mechanism wins, and what is said where none fits.
#include "firstfault/reason/engine.h"

#include <gtest/gtest.h>

#include "firstfault/reason/mechanisms/hand_made.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Origin explained(OriginEvidence evidence) {
  Origin origin;
  origin.evidence = std::move(evidence);
  explain(origin);
  return origin;
}

TEST(Engine, FillsMechanismCauseBecauseAndAdvice) {
  const Origin origin = explained(forward("aten::log", kNegInf, {tensor("self", 0)}));
  EXPECT_EQ(origin.mechanism, "log_of_nonpositive");
  EXPECT_EQ(origin.cause, "op_domain");
  EXPECT_FALSE(origin.because.empty());
  EXPECT_FALSE(origin.advice.empty());
}

TEST(Engine, SaysWhatIsKnownWhereNoMechanismFits) {
  const Origin finite = explained(forward("aten::foo", kNaN, {tensor("self", 1)}));
  EXPECT_EQ(finite.mechanism, "");
  EXPECT_EQ(finite.cause, "");
  EXPECT_EQ(finite.because, "NaN came out of aten::foo although all its operands were finite");
  const Origin missing = explained(forward("aten::foo", kNaN, {unknown(tensor("self", 1)), tensor("other", 1)}));
  EXPECT_EQ(missing.because, "NaN came out of aten::foo; not inspected: 'self'");
  const Origin mask = explained(forward("aten::sum", kNegInf, {tensor("self", -INFINITY)}));
  EXPECT_TRUE(contains(mask.because, "somebody meant"));
  EXPECT_EQ(explained(OriginEvidence{}).because, "");
}

TEST(Engine, ForgetsAnEarlierVerdict) {
  Origin origin = explained(forward("aten::log", kNegInf, {tensor("self", 0)}));
  origin.evidence = forward("aten::foo", kNaN, {tensor("self", 1)});
  explain(origin);
  EXPECT_EQ(origin.mechanism, "");
  EXPECT_EQ(origin.advice, "");
}

TEST(Engine, ADomainThatTheOptimizersArithmeticLeavesIsItsState) {
  Origin origin;
  origin.phase = Phase::optimizer;
  origin.evidence = forward("aten::sqrt", kNaN, {tensor("self", -1)});
  explain(origin);
  EXPECT_EQ(origin.mechanism, "sqrt_or_rsqrt_domain");
  EXPECT_EQ(origin.cause, "optimizer_state");
  origin.phase = Phase::forward;
  explain(origin);
  EXPECT_EQ(origin.cause, "op_domain");
}

TEST(Engine, AsksWhoHeldTheValueBeforeWhatTheOpDid) {
  auto evidence = forward("aten::log", kNegInf, {tensor("self", 0)});
  evidence.role = TensorRole::batch;
  EXPECT_EQ(explained(evidence).mechanism, "bad_input");
}

TEST(Engine, AsksForABoundaryBeforeAPlainDivision) {
  const auto node = backward("SqrtBackward0", "aten::div", kPosInf, {tensor("self", 1), tensor("other", 0)});
  EXPECT_EQ(explained(of_forward(node, "aten::sqrt")).mechanism, "derivative_at_boundary");
  auto custom = node;
  custom.op = "MyFunctionBackward";
  EXPECT_EQ(explained(custom).mechanism, "division_by_zero");
}

TEST(Engine, ExplainsEveryOriginOfARunAndEveryCulpritOfADiagnosis) {
  Origin origin;
  origin.evidence = forward("aten::log", kNegInf, {tensor("self", 0)});
  firstfault::Run run;
  run.origins = {origin, origin};
  explain(run);
  EXPECT_EQ(run.origins[1].mechanism, "log_of_nonpositive");
  Diagnosis diagnosis;
  diagnosis.culprits = {origin};
  explain(diagnosis);
  EXPECT_EQ(diagnosis.culprits[0].mechanism, "log_of_nonpositive");
}

}  // namespace
}  // namespace firstfault::reason
