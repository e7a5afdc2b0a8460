#include "firstfault/record/storage/json.h"

#include <cmath>

#include <gtest/gtest.h>

#include "firstfault/record/hand_made.h"

namespace firstfault::record {
namespace {

TEST(RecordJson, BringsAnOriginBackWhole) {
  const Origin given = hand_made_origin(41, Outcome::deselected);
  Origin back;
  from_json(to_json(given), back);
  EXPECT_EQ(to_json(back), to_json(given));
  EXPECT_EQ(back.step, 41);
  EXPECT_EQ(back.op_number, 123456789012);
  EXPECT_EQ(back.phase, Phase::backward);
  EXPECT_EQ(back.op, given.op);
  EXPECT_EQ(back.inner_op, given.inner_op);
  EXPECT_EQ(back.outer_op, given.outer_op);
  EXPECT_EQ(back.forward_op, given.forward_op);
  EXPECT_EQ(back.module, given.module);
  EXPECT_EQ(back.after_module, given.after_module);
  EXPECT_EQ(back.param, given.param);
  EXPECT_EQ(back.device, given.device);
  EXPECT_EQ(back.sample, 7);
  EXPECT_EQ(back.stack, given.stack);
  EXPECT_EQ(back.outcome, Outcome::deselected);
  EXPECT_EQ(back.sink, given.sink);
  EXPECT_EQ(back.merged, 4);
  EXPECT_TRUE(back.replayed);
  EXPECT_EQ(back.mechanism + back.cause + back.because + back.advice, "derivative_at_boundaryop_domain1/0eps");
  ASSERT_EQ(back.path.size(), 2u);
  EXPECT_EQ(back.path[1].op_number, 4);
  EXPECT_EQ(back.path[1].op + back.path[0].module, "aten::mulmodel.0");
  EXPECT_EQ(back.path[1].phase, Phase::optimizer);
  EXPECT_EQ(back.path[1].holds + back.path[1].outer_op + back.path[1].dtype, "NaNaten::mul_float16");
  EXPECT_EQ(back.path[1].shape, (std::vector<std::int64_t>{2, 3}));
}

TEST(RecordJson, BringsTheEvidenceBackWhole) {
  Origin back;
  from_json(to_json(hand_made_origin(0, Outcome::fault)), back);
  const OriginEvidence& evidence = back.evidence;
  EXPECT_EQ(evidence.op + evidence.inner_op + evidence.forward_op, "SqrtBackward0aten::divaten::sqrt");
  EXPECT_TRUE(evidence.in_backward);
  EXPECT_EQ(evidence.dtype, "float32");
  EXPECT_EQ(evidence.shape, (std::vector<std::int64_t>{2, 0, 5}));
  EXPECT_EQ(evidence.output, (Counts{1, 2, 3}));
  EXPECT_EQ(evidence.first, kNegInf);
  EXPECT_EQ(evidence.index, (std::vector<std::int64_t>{1, 0, 4}));
  EXPECT_EQ(evidence.role, TensorRole::buffer);
  EXPECT_EQ(evidence.role_name, "bn.running_var");
  ASSERT_TRUE(evidence.row);
  EXPECT_EQ(evidence.row->dim * 1000 + evidence.row->length * 100 + evidence.row->neg_inf * 10 + evidence.row->nan,
            1234);
  EXPECT_EQ(evidence.row->index, std::vector<std::int64_t>{5});
  ASSERT_EQ(evidence.operands.size(), 2u);
  const Operand& operand = evidence.operands[0];
  EXPECT_EQ(operand.name + operand.dtype + operand.source, "selfbfloat16buffer 'bn.running_var'");
  EXPECT_EQ(operand.shape, std::vector<std::int64_t>{2});
  EXPECT_TRUE(operand.is_scalar_argument && operand.was_overwritten);
  EXPECT_EQ(operand.state, OperandState::intended_inf);
  EXPECT_EQ(operand.counts, (Counts{4, 5, 6}));
  EXPECT_EQ(operand.value, -INFINITY);
  EXPECT_EQ(operand.index, std::vector<std::int64_t>{1});
  EXPECT_EQ(operand.min, 0.1);
  EXPECT_TRUE(operand.max && std::isnan(*operand.max));
  EXPECT_EQ(operand.zeros, 9);
  EXPECT_FALSE(evidence.operands[1].value || evidence.operands[1].zeros);
}

TEST(RecordJson, BringsTheSetupBackWithoutItsModules) {
  firstfault::Setup back;
  from_json(to_json(hand_made_setup()), back);
  const auto given = hand_made_setup();
  EXPECT_EQ(back.command, given.command);
  EXPECT_EQ(back.directory + back.git_commit + back.host + back.started + back.level,
            given.directory + given.git_commit + given.host + given.started + given.level);
  EXPECT_EQ(back.versions, given.versions);
  ASSERT_EQ(back.optimizers.size(), 2u);
  EXPECT_EQ(back.optimizers[0].type, "Adam");
  EXPECT_EQ(back.optimizers[0].groups, given.optimizers[0].groups);
  EXPECT_TRUE(back.modules.empty());
}

TEST(RecordJson, ReplacesBytesThatAreNotUtf8) {
  firstfault::Setup setup;
  setup.directory = "/data/\xFFx";
  firstfault::Setup back;
  from_json(to_json(setup), back);
  EXPECT_EQ(back.directory, "/data/\xEF\xBF\xBDx");
}

TEST(RecordJson, ThrowsOnWhatIsNoOrigin) {
  for (const char* text : {"", "{", "{\"phase\": \"no such\"}", "{\"path\": 3}", "{\"op\": []}", "{\"step\": \"x\"}"}) {
    Origin origin;
    EXPECT_THROW(from_json(text, origin), std::exception) << text;
  }
}

}  // namespace
}  // namespace firstfault::record
