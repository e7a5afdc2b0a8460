#include "firstfault/live/intercept/place_predictor.h"

#include <gtest/gtest.h>

#include <vector>

namespace firstfault::intercept {
namespace {

constexpr int kOps[8] = {};

PlacePredictor::Key key(int op, int parameter = 0) {
  return {&kOps[op], parameter ? reinterpret_cast<const void*>(static_cast<std::uintptr_t>(parameter)) : nullptr};
}

struct Call {
  PlacePredictor::Key key;
  PlaceId place;
};

// Runs the calls as a program would and returns how many stacks had to be walked; every prediction must be right.
int walks(PlacePredictor& predictor, const std::vector<Call>& calls) {
  int walked = 0;
  for (const Call& call : calls) {
    const PlaceId predicted = predictor.predict(call.key);
    if (predicted == PlacePredictor::kMustWalk) {
      predictor.learn(call.key, call.place);
      ++walked;
    } else {
      EXPECT_EQ(predicted, call.place);
    }
  }
  return walked;
}

TEST(PlacePredictor, WalksALoopOnceAndThenRarely) {
  PlacePredictor predictor;
  const std::vector<Call> step{{key(0), 10}, {key(1), 11}, {key(0), 12}, {key(2), 13}};
  EXPECT_EQ(walks(predictor, step), 4);
  int walked = 0;
  for (int i = 0; i < 1000; ++i) walked += walks(predictor, step);
  EXPECT_LE(walked, 4 * 11) << "the 1st, 2nd, 4th … use of each is checked";
  EXPECT_EQ(predictor.size(), 4u);
}

TEST(PlacePredictor, TellsTwinModulesApartByTheirParameters) {
  PlacePredictor predictor;
  for (int i = 0; i < 20; ++i) {
    walks(predictor, {{key(0, 100), 1}, {key(1), 2}});
    walks(predictor, {{key(0, 200), 3}, {key(1), 4}});
  }
}

TEST(PlacePredictor, LearnsAlternatingPathsOnce) {
  PlacePredictor predictor;
  const std::vector<Call> shorter{{key(0), 1}, {key(1), 2}, {key(2), 9}};
  const std::vector<Call> longer{{key(0), 1}, {key(1), 2}, {key(3), 3}, {key(2), 9}};
  for (int i = 0; i < 40; ++i) walks(predictor, i % 2 ? shorter : longer);
  EXPECT_EQ(walks(predictor, shorter) + walks(predictor, longer), 0);
}

TEST(PlacePredictor, AnOpThatMayComeFromTwoPlacesIsAlwaysWalked) {
  PlacePredictor predictor;
  walks(predictor, {{key(0), 1}, {key(1), 2}});
  walks(predictor, {{key(0), 1}});
  ASSERT_EQ(predictor.predict(key(1)), PlacePredictor::kMustWalk);  // the check at the first use finds another place
  predictor.learn(key(1), 5);
  for (int i = 0; i < 20; ++i) walks(predictor, {{key(0), 1}, {key(1), i % 3 ? 2 : 5}});
}

TEST(PlacePredictor, APlaceThatTheProgramHasLeftCostsNothingForLong) {
  PlacePredictor predictor;
  for (int i = 0; i < 5; ++i) walks(predictor, {{key(0), 1}, {key(1), 2}});  // warm-up
  for (int i = 0; i < 200; ++i) {                                            // the main loop, on another line
    for (const Call& call : {Call{key(0), 1}, Call{key(1), 3}}) {
      const bool must_walk = predictor.predict(call.key) == PlacePredictor::kMustWalk;
      if (must_walk) predictor.learn(call.key, call.place);
    }
  }
  EXPECT_EQ(walks(predictor, {{key(0), 1}, {key(1), 3}}), 0);
}

TEST(PlacePredictor, ForgetsAllWhenItIsFull) {
  PlacePredictor predictor;
  for (int i = 1; i < 100000; ++i) walks(predictor, {{key(0, i), i}});
  EXPECT_LE(predictor.size(), 1u << 15);
}

}  // namespace
}  // namespace firstfault::intercept
