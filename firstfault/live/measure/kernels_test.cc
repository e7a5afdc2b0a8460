// Every kernel on every instruction set of this CPU, with a bad value at each position.
#include "firstfault/live/measure/kernels.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/tests/hwy_gtest.h>

namespace firstfault::measure {
namespace {

template <class Format>
struct Samples {
  using Word = typename Format::Word;
  static constexpr Word kExponent = Format::kExponent;
  static constexpr Word kSign = static_cast<Word>(~kMagnitude<Format>);
  static constexpr Word kQuiet = static_cast<Word>(kExponent >> 1 & ~kExponent);  // the fraction's highest bit

  /// Zeros, denormals, the least and greatest normals, of both signs, and 1.
  static std::vector<Word> finite() {
    const Word fraction = kMagnitude<Format> & static_cast<Word>(~kExponent);
    std::vector<Word> words;
    for (const Word magnitude : {Word{0}, Word{1}, fraction, static_cast<Word>(fraction + 1),
                                 static_cast<Word>(kExponent - 1), static_cast<Word>(kExponent >> 1)}) {
      words.push_back(magnitude);
      words.push_back(static_cast<Word>(magnitude | kSign));
    }
    return words;
  }

  struct Bad {
    Word word;
    NonFinite kind;
  };
  /// Both Infs; NaNs of both signs: quiet, signalling with the least payload, all ones.
  static std::vector<Bad> bad() {
    std::vector<Bad> samples = {{kExponent, kPosInf}, {static_cast<Word>(kExponent | kSign), kNegInf}};
    for (const Word payload : {static_cast<Word>(1), kQuiet, static_cast<Word>(kMagnitude<Format> & ~kExponent)}) {
      samples.push_back({static_cast<Word>(kExponent | payload), kNaN});
      samples.push_back({static_cast<Word>(kExponent | payload | kSign), kNaN});
    }
    return samples;
  }

  static std::vector<Word> finite_array(std::size_t n) {
    const std::vector<Word> samples = finite();
    std::vector<Word> words(n);
    for (std::size_t i = 0; i < n; ++i) words[i] = samples[i % samples.size()];
    return words;
  }
};

class Kernels : public hwy::TestWithParamTarget {};
HWY_TARGET_INSTANTIATE_TEST_SUITE_P(Kernels);

template <class Test>
void for_each_format(Test&& test) {
  test(Fp32{}), test(Fp64{}), test(Fp16{}), test(Bf16{});
}

TEST_P(Kernels, run_on_the_target_that_was_asked_for) { EXPECT_EQ(simd_target(), hwy::TargetName(GetParam())); }

TEST_P(Kernels, finite_arrays_of_every_length_are_finite) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    for (std::size_t n = 0; n <= 300; ++n) {
      const auto words = Samples<Format>::finite_array(n);
      EXPECT_FALSE(any_non_finite<Format>(words.data(), n)) << n;
      EXPECT_EQ(non_finite_bits<Format>(words.data(), n), kFinite) << n;
    }
  });
}

template <class Format>
void expect_found_everywhere(std::size_t n) {
  auto words = Samples<Format>::finite_array(n);
  const auto samples = Samples<Format>::bad();
  for (std::size_t i = 0; i < n; ++i) {
    const auto [word, kind] = samples[(i + n) % samples.size()];
    const auto before = std::exchange(words[i], word);
    ASSERT_TRUE(any_non_finite<Format>(words.data(), n)) << "at " << i << " of " << n;
    ASSERT_EQ(non_finite_bits<Format>(words.data(), n), kind) << "at " << i << " of " << n;
    words[i] = before;
  }
}

TEST_P(Kernels, one_bad_value_is_found_at_each_position_of_every_length) {
  for_each_format([](auto format) {
    for (std::size_t n = 1; n <= 300; ++n) expect_found_everywhere<decltype(format)>(n);
  });
}

TEST_P(Kernels, every_bad_pattern_is_named_in_vectors_and_in_tails) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    auto words = Samples<Format>::finite_array(97);
    for (const auto& bad : Samples<Format>::bad()) {
      for (const std::size_t i : {0u, 50u, 96u}) {
        const auto before = std::exchange(words[i], bad.word);
        EXPECT_EQ(non_finite_bits<Format>(words.data(), words.size()), bad.kind) << std::hex << std::uint64_t{bad.word};
        words[i] = before;
      }
    }
  });
}

TEST_P(Kernels, every_16_bit_pattern_is_classified_as_its_bits_say) {
  for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const std::vector<std::uint16_t> words(64, static_cast<std::uint16_t>(pattern));
    ASSERT_EQ(non_finite_bits<Fp16>(words.data(), 64), kind_of<Fp16>(words[0])) << pattern;
    ASSERT_EQ(non_finite_bits<Bf16>(words.data(), 64), kind_of<Bf16>(words[0])) << pattern;
  }
}

TEST_P(Kernels, several_blocks_are_searched_to_the_end) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    using Samples = Samples<Format>;
    constexpr std::size_t kBlock = 16 * 1024 / sizeof(typename Format::Word);
    for (const std::size_t n : {kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 3 * kBlock + 7}) {
      auto words = Samples::finite_array(n);
      EXPECT_EQ(non_finite_bits<Format>(words.data(), n), kFinite) << n;
      words[n - 1] = Samples::bad()[0].word;
      EXPECT_TRUE(any_non_finite<Format>(words.data(), n)) << n;
      words[0] = Samples::bad()[1].word;
      words[n / 2] = Samples::bad()[2].word;
      EXPECT_EQ(non_finite_bits<Format>(words.data(), n), kAnyBad) << n;
    }
  });
}

TEST_P(Kernels, nothing_beyond_the_array_is_looked_at) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    for (std::size_t n = 0; n <= 150; ++n) {
      auto words = Samples<Format>::finite_array(n + 2);
      words.front() = words.back() = Format::kExponent;
      EXPECT_FALSE(any_non_finite<Format>(words.data() + 1, n)) << n;
      EXPECT_EQ(non_finite_bits<Format>(words.data() + 1, n), kFinite) << n;
    }
  });
}

TEST_P(Kernels, memory_may_be_misaligned) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    const auto words = Samples<Format>::finite_array(100);
    const std::size_t bytes = words.size() * sizeof(words[0]);
    std::vector<std::byte> memory(bytes + 1);
    std::memcpy(memory.data() + 1, words.data(), bytes);
    EXPECT_FALSE(any_non_finite<Format>(memory.data() + 1, words.size()));
    const auto bad = Samples<Format>::bad().back().word;
    std::memcpy(memory.data() + 1 + bytes - sizeof(bad), &bad, sizeof(bad));
    EXPECT_EQ(non_finite_bits<Format>(memory.data() + 1, words.size()), kNaN);
  });
}

TEST_P(Kernels, ranges_match_a_plain_loop) {
  std::mt19937_64 random(1);
  for_each_format([&](auto format) {
    using Format = decltype(format);
    using Word = typename Format::Word;
    for (const std::size_t n : {1u, 7u, 8u, 31u, 64u, 100u, 2047u, 2048u}) {
      std::vector<Word> words(n);
      WordRange<Format> expected, actual;
      for (Word& word : words) {
        do word = static_cast<Word>(random() % 5 ? random() : 0);
        while (kind_of<Format>(word) != kFinite);
        expected.add(word);
      }
      finite_range<Format>(words.data(), n, actual);
      EXPECT_EQ(actual.min, expected.min) << n;
      EXPECT_EQ(actual.max, expected.max) << n;
      EXPECT_EQ(actual.zeros, expected.zeros) << n;
    }
  });
}

TEST_P(Kernels, the_largest_magnitude_and_signs_match_a_plain_loop) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> memory(5000);
  for (const std::size_t n : {0u, 1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 300u, 4095u, 4096u, 4097u, 4900u}) {
    for (const std::uint32_t signs : {0u, 1u}) {
      for (auto& word : memory) {
        word = random() % 0x7F80'0000u | (signs && random() % 1000 == 0 ? 0x8000'0000u : 0u);
      }
      const auto* words = reinterpret_cast<const std::byte*>(memory.data()) + 4 * (random() % 64);
      Magnitude<Fp32> plain, found;
      for (std::size_t i = 0; i < n; ++i) {
        const auto word = word_at<Fp32>(words, i);
        plain.largest = std::max(plain.largest, word & 0x7FFF'FFFFu);
        plain.signs = plain.signs || word >> 31 != 0;
      }
      dispatched::magnitude(words, n, found);
      EXPECT_EQ(found.largest, plain.largest) << n;
      EXPECT_EQ(found.signs, plain.signs) << n;
      EXPECT_TRUE(found.finite());
    }
  }
}

TEST_P(Kernels, a_magnitude_is_not_finite_wherever_a_bad_value_is) {
  for (const std::size_t n : {1u, 17u, 64u, 100u, 4100u}) {
    std::vector<std::uint32_t> words(n, 0x3F80'0000u);
    for (std::size_t i = 0; i<n; i += n> 1000 ? 37 : 1) {
      for (const std::uint32_t bad : {0x7F80'0000u, 0xFF80'0000u, 0x7FC0'0000u, 0xFFC0'0000u, 0x7F80'0001u}) {
        words[i] = bad;
        Magnitude<Fp32> found;
        dispatched::magnitude(words.data(), n, found);
        EXPECT_FALSE(found.finite()) << "at " << i << " of " << n;
        words[i] = 0x3F80'0000u;
      }
    }
  }
}

TEST_P(Kernels, zeros_of_a_whole_chunk_are_all_counted) {
  for_each_format([](auto format) {
    using Format = decltype(format);
    const std::vector<typename Format::Word> words(kMaxRangeElements, 0);
    WordRange<Format> range;
    finite_range<Format>(words.data(), words.size(), range);
    EXPECT_EQ(range.zeros, static_cast<std::int64_t>(kMaxRangeElements));
    EXPECT_EQ(range.min, 0);
    EXPECT_EQ(range.max, 0);
  });
}

TEST_P(Kernels, signalling_nans_raise_no_floating_point_flag) {
  std::feclearexcept(FE_ALL_EXCEPT);
  for_each_format([](auto format) {
    using Format = decltype(format);
    const std::vector<typename Format::Word> words(500, static_cast<typename Format::Word>(Format::kExponent | 1));
    EXPECT_EQ(non_finite_bits<Format>(words.data(), words.size()), kNaN);
  });
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
}

TEST(OrderedWords, are_in_the_order_of_the_numbers_and_lead_back) {
  const std::array<float, 8> numbers = {-3e38f, -1.0f, -1e-45f, -0.0f, 0.0f, 1e-45f, 1.0f, 3e38f};
  std::int32_t before = std::numeric_limits<std::int32_t>::min();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto word = word_at<Fp32>(numbers.data(), i);
    const std::int32_t key = ordered<Fp32>(word);
    EXPECT_LT(before, key);
    EXPECT_EQ(static_cast<std::uint32_t>(ordered<Fp32>(static_cast<std::uint32_t>(key))), word);
    before = key;
  }
}

}  // namespace
}  // namespace firstfault::measure
