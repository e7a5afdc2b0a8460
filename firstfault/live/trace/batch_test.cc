#include "firstfault/live/trace/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace firstfault::trace {
namespace {

TEST(Batch, FindsTheDimOfEveryViewThatKeepsTheBatch) {
  const at::Tensor x = at::zeros({4, 3, 5});
  const BatchLayout layout = layout_of(x, {0, 1}, 4);
  EXPECT_EQ(batch_dim(x, layout), (BatchDim{0, 1}));
  EXPECT_EQ(batch_dim(x.transpose(0, 1), layout), (BatchDim{1, 1}));
  EXPECT_EQ(batch_dim(x.permute({2, 1, 0}), layout), (BatchDim{2, 1}));
  EXPECT_EQ(batch_dim(x.narrow(2, 1, 2), layout), (BatchDim{0, 1}));
}

TEST(Batch, UnderstandsHeadsFoldedIntoTheBatchAndFlattenedTokens) {
  const at::Tensor x = at::zeros({4, 3, 5});
  const BatchLayout layout = layout_of(x, {0, 1}, 4);
  EXPECT_EQ(batch_dim(x.view({12, 5}), layout), (BatchDim{0, 3}));
  EXPECT_EQ(sample_at(x.view({12, 5}), layout, {7, 2}), 2);
  EXPECT_EQ(sample_at(x.transpose(0, 1), layout, {2, 3, 4}), 3);
}

TEST(Batch, ClaimsNothingForASliceOfTheBatch) {
  const at::Tensor x = at::zeros({4, 3});
  const BatchLayout layout = layout_of(x, {0, 1}, 4);
  EXPECT_EQ(batch_dim(x.narrow(0, 1, 2), layout), std::nullopt);
  EXPECT_EQ(sample_at(x[2], layout, {1}), std::nullopt);
}

TEST(Batch, CountsFromTheFirstRowOfASliceOfADataSet) {
  const at::Tensor rows = at::zeros({100, 3}).narrow(0, 7, 6);
  const BatchLayout layout = layout_of(rows, {0, 1}, 6);
  EXPECT_EQ(sample_at(rows, layout, {1, 2}), 1);
  EXPECT_EQ(sample_at(rows, layout, {5, 0}), 5);
}

TEST(Batch, RefusesALengthThatIsNotTheBatchs) {
  EXPECT_FALSE(layout_of(at::zeros({4, 3}), {0, 1}, 8).known());
  EXPECT_FALSE(layout_of(at::zeros({1}).expand({4}), {0, 1}, 4).known()) << "all samples share the element";
}

}  // namespace
}  // namespace firstfault::trace
