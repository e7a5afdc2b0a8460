// Memory that a kernel will read soon.
#pragma once

#include <cstddef>

#include <hwy/cache_control.h>

namespace firstfault::measure {

/// Asks for the lines that lie a page behind `n` elements at `at`; none of them need exist. The processor's own
/// prefetcher stops at the end of each page, which costs up to a fifth of the time.
template <class T>
inline void prefetch_behind(const T* at, std::size_t n) noexcept {
  constexpr std::size_t kPage = 4096, kLine = 64;
  const auto* bytes = reinterpret_cast<const char*>(at) + kPage;
  for (std::size_t i = 0; i < n * sizeof(T); i += kLine) hwy::Prefetch(bytes + i);
}

}  // namespace firstfault::measure
