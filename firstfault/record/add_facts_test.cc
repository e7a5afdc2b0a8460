#include "firstfault/record/add_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/events/experiment.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/run_file.h"
#include "firstfault/record/test_files.h"

namespace firstfault::record {
namespace {

Experiment made(const char* name) {
  Experiment one;
  one.name = name;
  one.outcome = ExperimentOutcome::cured;
  one.step = 7;
  one.text = "what was changed";
  return one;
}

TEST(AddFacts, TheyFollowThoseThatARunHasAndAllElseStays) {
  TestFolder folder;
  const std::string path = folder.file("run.ffrun");
  {
    RunFile file(path);
    record_hand_made(file, 200, 12);
  }
  const auto before = read_run(path);
  add_facts(path, {fact_of(made("window")), fact_of(made("lower_rate"))});
  add_facts(path, {});
  auto after = read_run(path);
  ASSERT_EQ(after.facts.size(), before.facts.size() + 2);
  const auto experiments = experiments_of(after.facts);
  ASSERT_EQ(experiments.size(), 2u);
  EXPECT_EQ(experiments[0].name, "window");
  EXPECT_EQ(experiments[1].name, "lower_rate");
  EXPECT_EQ(experiments[1].text, "what was changed");
  after.facts.resize(before.facts.size());
  EXPECT_EQ(RunText::of(after), RunText::of(before));
  EXPECT_EQ(after.warnings, before.warnings);
}

TEST(AddFacts, NotToOneThatIsBeingRecordedNorToWhatIsNone) {
  TestFolder folder;
  const std::string path = folder.file("run.ffrun");
  RunFile file(path);
  record_hand_made(file, 20, 2);
  ASSERT_TRUE(file.flush(std::chrono::seconds(10)));
  EXPECT_THROW(add_facts(path, {fact_of(made("window"))}), Error);
  EXPECT_THROW(add_facts(folder.file("none.ffrun"), {fact_of(made("window"))}), Error);
  write_bytes(folder.file("text"), "no database");
  EXPECT_THROW(add_facts(folder.file("text"), {fact_of(made("window"))}), Error);
  EXPECT_EQ(bytes_of(folder.file("text")), "no database");
}

}  // namespace
}  // namespace firstfault::record
