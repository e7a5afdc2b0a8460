// The words a person reads.
#include "firstfault/present/text.h"

#include <gtest/gtest.h>

#include "firstfault/reason/engine.h"
#include "firstfault/reason/mechanisms/hand_made.h"

namespace firstfault::present {
namespace {

using namespace reason::hand_made;

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(contains(text, part)) << "no \"" << (part) << "\" in:\n" << (text)
#define EXPECT_LACKS(text, part) EXPECT_FALSE(contains(text, part)) << "\"" << (part) << "\" in:\n" << (text)

Origin log_of_zero() {
  Origin origin;
  origin.step = 37;
  origin.op_number = 412;
  origin.op = "aten::log";
  origin.module = "head.logprob";
  origin.device = "cpu";
  origin.sample = 2;
  origin.stack = {{"train.py", 58, "loss"}, {"train.py", 90, "main"}};
  origin.evidence = forward("aten::log", kNegInf, {with_range(tensor("self", 0), 0, 0.93, 131)});
  origin.evidence.output.neg_inf = 131;
  origin.outcome = Outcome::fault;
  origin.sink = "loss";
  origin.path = {{412, "aten::log", "", Phase::forward, "-Inf"}, {413, "aten::mul", "", Phase::forward, "NaN"}};
  reason::explain(origin);
  return origin;
}

TEST(OriginText, SaysWhatWhereWhyAndWhatToDo) {
  EXPECT_EQ(to_text(log_of_zero()),
            "-Inf first appeared in aten::log (op 412, step 37, forward), module 'head.logprob', at train.py:58.\n"
            "  why        log of 0 is -Inf: its operand 'self' holds 0 at [2, 17] (131 of 5,120 elements are 0).   "
            "[log_of_nonpositive]\n"
            "  output     float32 [64, 80] on cpu: 131 -Inf; first at [2, 17] = -Inf, sample 2\n"
            "  operands   self float32 [64, 80]: 0 at [2, 17], min 0, max 0.93, 131 zeros\n"
            "  called at  train.py:90 in main\n"
            "  harm       reached the loss\n"
            "  advice     clamp or add an eps inside the log, or use log_softmax, logsigmoid, log1p or "
            "BCEWithLogitsLoss.\n"
            "  path       aten::log (-Inf) -> aten::mul (NaN) -> loss");
}

TEST(OriginText, ABackwardFaultNamesItsForwardOpThatOpsLineAndModule) {
  Origin origin = log_of_zero();
  origin.phase = Phase::backward;
  origin.op = "SqrtBackward0";
  origin.inner_op = "aten::div";
  origin.forward_op = "aten::sqrt";
  origin.module = "bands";
  origin.stack = {{"model.py", 41, "forward"}};
  const std::string text = to_text(origin);
  EXPECT_CONTAINS(text, "SqrtBackward0, the backward of aten::sqrt at model.py:41, module 'bands'");
  EXPECT_CONTAINS(text, "inside: aten::div");
}

TEST(OriginText, OutsideTheModelNamesTheLastModule) {
  Origin origin = log_of_zero();
  origin.module = "";
  EXPECT_CONTAINS(to_text(origin), "outside any module,");
  origin.after_module = "fc3";
  EXPECT_CONTAINS(to_text(origin), "outside any module (after module 'fc3')");
}

TEST(OriginText, TheOptimizerNamesTheParameter) {
  Origin origin = log_of_zero();
  origin.phase = Phase::optimizer;
  origin.module = "";
  origin.param = "fc.weight";
  const std::string text = to_text(origin);
  EXPECT_CONTAINS(text, "updating parameter 'fc.weight'");
  EXPECT_LACKS(text, "outside any module");
}

TEST(OriginText, ATensorThatWasBadAlreadyIsTheSubject) {
  Origin origin = log_of_zero();
  origin.phase = Phase::parameter;
  origin.evidence.role = TensorRole::parameter;
  origin.evidence.role_name = "fc.weight";
  EXPECT_CONTAINS(to_text(origin), "-Inf was already in parameter 'fc.weight' (step 37, parameter); first read by");
}

TEST(OriginText, LeavesOutWhatIsAbsent) {
  const std::string text = to_text(Origin{});
  EXPECT_CONTAINS(text, "A non-finite value first appeared in");
  for (const char* label : {"why", "operands", "advice", "path", "called at", "sample", " at "})
    EXPECT_LACKS(text, label);
}

TEST(OriginText, ElidesTheMiddleOfALongPath) {
  Origin origin = log_of_zero();
  origin.path.clear();
  for (int i = 0; i < 20; ++i) origin.path.push_back({i, "aten::op" + std::to_string(i), "", Phase::forward, ""});
  const std::string text = to_text(origin);
  EXPECT_CONTAINS(text, "aten::op3 -> … 12 more … -> aten::op16");
  EXPECT_CONTAINS(text, "aten::op19 -> loss");
  EXPECT_LACKS(text, "aten::op10");
}

TEST(OriginText, NamesCannotDriveTheTerminal) {
  Origin origin = log_of_zero();
  origin.module = "fc\x1b[31m\n\xff";
  origin.stack[0].file = "a\x1b]0;x\x07.py";
  origin.because = "parameter '\x1b[2J'";
  origin.sink = "gradient of '\x1b[1m'";
  origin.evidence.operands[0].name = "\x1bself";
  origin.path[0].op = "\x1bop";
  const std::string text = to_text(origin);
  EXPECT_LACKS(text, "\x1b");
  EXPECT_LACKS(text, "\x07");
  EXPECT_CONTAINS(text, "module 'fc\\x1b[31m\\n\\xff'");
}

TEST(OriginText, SaysWhenAnOperandWasOverwrittenNotInspectedOrAlreadyBad) {
  Origin origin = log_of_zero();
  origin.evidence.operands = {not_kept(tensor("self", 0)), unknown(tensor("other", 0)), scalar("alpha", 1),
                              scalar("value", 0.5)};
  const std::string text = to_text(origin);
  EXPECT_CONTAINS(text, "self float32 [64, 80]: as it was before the op overwrote it");
  EXPECT_CONTAINS(text, "other float32 [64, 80]: not inspected");
  EXPECT_CONTAINS(text, "value = 0.5");
  EXPECT_LACKS(text, "alpha");
}

TEST(DiagnosisText, AFiniteTargetSaysSo) {
  Diagnosis diagnosis;
  diagnosis.target = "loss";
  diagnosis.dtype = "float32";
  diagnosis.ops = 1730;
  EXPECT_EQ(to_text(diagnosis), "loss (float32 []) is finite: nothing is wrong with it. 1,730 ops traced.");
}

TEST(DiagnosisText, CountsTheCulprits) {
  Diagnosis diagnosis;
  diagnosis.target = "loss";
  diagnosis.counts.nan = 1;
  diagnosis.ops = 15;
  EXPECT_CONTAINS(to_text(diagnosis), "no traced op made it");
  diagnosis.culprits = {log_of_zero()};
  EXPECT_CONTAINS(to_text(diagnosis), "loss holds 1 NaN: 1 culprit out of 15 ops traced.\n\n-Inf first appeared");
  diagnosis.culprits.push_back(log_of_zero());
  const std::string two = to_text(diagnosis);
  EXPECT_CONTAINS(two, "2 culprits out of 15 ops traced");
  EXPECT_CONTAINS(two, "Culprit 2 of 2\n  -Inf first appeared");
}

TEST(RunText, FaultsThenWarningsThenNotesThenWhatWasMissed) {
  firstfault::Run run;
  run.steps = 38;
  run.ops = 2000;
  Origin swallowed = log_of_zero();
  swallowed.outcome = Outcome::swallowed;
  Origin note = log_of_zero();
  note.outcome = Outcome::deselected;
  run.origins = {log_of_zero(), swallowed, note};
  run.uninspected = {{"layout sparse_coo", 3}};
  run.warnings = {"the cap of 10,000 nodes was reached"};
  const std::string text = to_text(run);
  EXPECT_CONTAINS(text, "1 fault in 38 steps, 2,000 ops traced; 1 warning.");
  EXPECT_LT(text.find("Fault 1 of 1"), text.find("Warning 1 of 1"));
  EXPECT_LT(text.find("Warning 1 of 1"), text.find("1 note: non-finite values that were left out or never used."));
  EXPECT_CONTAINS(text, "Not inspected: layout sparse_coo, 3 tensors.");
  EXPECT_CONTAINS(text, "the cap of 10,000 nodes was reached");
}

TEST(RunText, AHealthyRunIsOneLine) {
  firstfault::Run run;
  run.steps = 1;
  run.ops = 12;
  EXPECT_EQ(to_text(run), "No fault in 1 step, 12 ops traced.");
}

}  // namespace
}  // namespace firstfault::present
