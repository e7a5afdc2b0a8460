#include "firstfault/live/trace/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "firstfault/events/counts.h"

namespace firstfault::trace {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Judgement kBegins{true, false}, kHandedOn{false, false}, kMeant{false, true};

intercept::OpTraits op(bool passes = false, bool flips = false, bool fills = false) {
  intercept::OpTraits traits;
  traits.passes_inf = passes;
  traits.flips_inf = flips;
  traits.fills = fills;
  return traits;
}

OutputFacts facts(std::uint8_t bits, std::uint8_t unintended = 0, std::uint8_t intended = 0) {
  OutputFacts f;
  f.bits = bits;
  f.unintended_in = unintended;
  f.intended_in = intended;
  return f;
}

TEST(Judge, ABadOutputFromFiniteOperandsBeginsHere) {
  EXPECT_EQ(judge(op(), facts(kNaN)), kBegins);
  EXPECT_EQ(judge(op(true), facts(kPosInf)), kBegins);
}

TEST(Judge, ABadOperandIsHandedOn) { EXPECT_EQ(judge(op(), facts(kNaN, kPosInf)), kHandedOn); }

TEST(Judge, AFillWithAnInfiniteConstantIsMeant) {
  OutputFacts f = facts(kNegInf);
  f.scalar = -kInf;
  EXPECT_EQ(judge(op(false, false, true), f), kMeant);
  EXPECT_EQ(judge(op(), f), kBegins) << "x + alpha*inf is no fill";
}

TEST(Judge, AnInfFilledIntoAParameterIsNotMeant) {
  OutputFacts f = facts(kPosInf);
  f.scalar = kInf;
  f.writes_parameter = true;
  EXPECT_EQ(judge(op(false, false, true), f), kBegins);
}

TEST(Judge, AnInfiniteNumberInTheOptimizersArithmeticIsNotMeant) {
  OutputFacts f = facts(kPosInf, 0, kPosInf);
  f.scalar = kInf;
  EXPECT_EQ(judge(op(true), f), kMeant) << "x + inf may be a mask";
  f.in_optimizer = true;
  EXPECT_EQ(judge(op(true), f), kBegins);
  EXPECT_EQ(judge(op(true, false, true), f), kMeant) << "state that begins at Inf";
}

TEST(Judge, AFillWithNanIsNeverMeant) {
  OutputFacts f = facts(kNaN);
  f.scalar = std::nan("");
  EXPECT_EQ(judge(op(false, false, true), f), kBegins);
}

TEST(Judge, AnIntendedInfGoesThroughAnOpThatOnlyPlacesValues) {
  EXPECT_EQ(judge(op(true), facts(kNegInf, 0, kNegInf)), kMeant);
}

TEST(Judge, AnIntendedInfThatAnOpMixesIntoOthersEndsThere) {
  EXPECT_EQ(judge(op(false), facts(kNegInf, 0, kNegInf)), kBegins);
}

TEST(Judge, ANanMadeFromAnIntendedInfBeginsThere) {
  EXPECT_EQ(judge(op(true, true), facts(kNaN, 0, kNegInf)), kBegins);
}

TEST(Judge, ASignThatTheOpCannotMakeByFlippingIsNew) {
  EXPECT_EQ(judge(op(true, false), facts(kPosInf, 0, kNegInf)), kBegins);
  EXPECT_EQ(judge(op(true, true), facts(kPosInf, 0, kNegInf)), kMeant);
}

TEST(Judge, TheBiasOfAMatrixProductMayBeAMaskAndItsFactorsMayNot) {
  intercept::OpTraits traits = op();
  traits.mask_first = true;
  OutputFacts f = facts(kNegInf, 0, kNegInf);
  f.only_first_argument = true;
  EXPECT_EQ(judge(traits, f), kMeant);
  f.only_first_argument = false;
  EXPECT_EQ(judge(traits, f), kBegins);
}

TEST(Judge, AnAuxiliaryOutputMayHoldInfAndMemoryNeverWritten) {
  OutputFacts f = facts(kNegInf);
  f.auxiliary = true;
  EXPECT_EQ(judge(op(), f), kMeant);
  f.bits = kNaN;
  EXPECT_EQ(judge(op(), f), kMeant);
}

}  // namespace
}  // namespace firstfault::trace
