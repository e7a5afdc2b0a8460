// Sums over a solid run of numbers, by Highway. No LibTorch.
#pragma once

#include <cstddef>

namespace firstfault::measure {

struct Moments;

/// Adds `n` numbers to `into`. Sums are taken in double. Needs no alignment beyond the type's.
void add_moments(const float* data, std::size_t n, Moments& into);
void add_moments(const double* data, std::size_t n, Moments& into);

}  // namespace firstfault::measure
