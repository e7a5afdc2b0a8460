// Tests on a series of numbers, for rules: growth, oscillation, slope and plateau, growth by depth. Pure functions.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

// Everywhere: NaN and Inf (and where logs are taken, what is not above 0) are left out. `at` are the positions of the
// values, ascending, such as step numbers (rows of a run are thinned out); empty: 0, 1, 2 … Fewer than 4 usable values
// give confidence 0 and NaN. A series longer than 256 is first thinned to medians of 256 blocks, so each call costs at
// most about a millisecond. Confidence: 0 to 1.

namespace firstfault::detect {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Slope by Theil–Sen: the median of the slopes of all pairs; up to 29 % of the values can be outliers (Sen 1968).
struct Slope {
  double per_step = kUnknown;
  double at_start = kUnknown;  ///< fitted value at the first position
  double at_end = kUnknown;    ///< at the last
  double error = kUnknown;     ///< standard error of per_step, from Sen's rank interval
  double rising = 0;           ///< confidence that it rises: 1 - p of the one-sided Mann–Kendall test
  double falling = 0;          ///< that it falls; 0.5 and 0.5 mean nothing is known
  std::size_t used = 0;
};
Slope slope(std::span<const double> values, std::span<const double> at = {});

/// The same for the logarithm: value ~ factor^step.
struct Growth {
  double factor = kUnknown;  ///< per step: 1.1 grows by a tenth each step
  double total = kUnknown;   ///< over the whole series, fitted: factor^(last - first)
  double growing = 0;        ///< confidence that factor > 1
  double shrinking = 0;
  double linear = kUnknown;  ///< how well a line in the log fits: 1 - (spread of residuals / spread of the logs), 0
                             ///< to 1. Near 1 for geometric growth; for growth that flattens out or noise it is low
  std::size_t used = 0;
};
Growth growth(std::span<const double> values, std::span<const double> at = {});

/// Does it go up and down at each step, as with a learning rate too high, and do the swings grow?
struct Oscillation {
  double flips =
      kUnknown;  ///< share of inner values that are turning points: 2/3 for noise, 1 for a zigzag, 0 for a slope
  double confidence = 0;        ///< that it zigzags more than noise does (turning-point test, Bienaymé 1874)
  double amplitude = kUnknown;  ///< median of |difference| over median of |value|
  Growth swings;                ///< of |difference|
};
/// Consecutive steps only: no thinning, the newest 256 values are looked at.
Oscillation oscillation(std::span<const double> values);

/// Slope of a smoothed loss, judged against its level: a fixed delta is wrong at another scale.
struct LossTrend {
  double change = kUnknown;  ///< fitted end minus fitted start, over the larger of |start| and the noise; -1: fell to 0
  double noise = kUnknown;   ///< robust standard deviation around the fit, after smoothing
  double rising = 0, falling = 0;  ///< as in Slope
  double flat = 0;                 ///< confidence that |change| is below `tolerance`: a plateau
  std::size_t used = 0;            ///< values, before smoothing
};
LossTrend loss_trend(std::span<const double> losses, double tolerance = 0.05);

/// Gradient norm (or rms) by layer, where a layer is a distinct order, the k-th of them in the forward pass:
/// norm ~ lambda^k. A gradient that vanishes on its way back has lambda > 1: the first layers get little.
struct DepthFit {
  double lambda = kUnknown;    ///< factor per layer, in the direction of the order (forward)
  double backward = kUnknown;  ///< 1 / lambda: factor per layer in the direction the gradient flows
  double first = kUnknown;     ///< fitted norm at the smallest order
  double last = kUnknown;      ///< at the largest
  double confidence = 0;       ///< that lambda differs from 1 as it says (Mann–Kendall, times how linear it is)
  std::size_t layers = 0;      ///< distinct orders used; several norms of one order are first put into their median
};
/// Pairs in any order; negative orders (not known) are left out.
DepthFit depth_fit(std::span<const double> orders, std::span<const double> norms);

/// Medians of `blocks` consecutive parts of about equal length; NaN-tolerant; a part without a usable value is left
/// out.
std::vector<double> block_medians(std::span<const double> values, std::size_t blocks);

/// Of the usable values; NaN for none. 1.4826 * MAD is a standard deviation.
double median(std::span<const double> values);
double mad(std::span<const double> values);

}  // namespace firstfault::detect
