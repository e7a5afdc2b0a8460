// Work in pieces on ATen's threads.
#pragma once

#include <cstddef>
#include <functional>

namespace firstfault::guard {

/// Calls work(0) … work(count - 1), each once, in any order, on up to at::get_num_threads() threads: those of the
/// OpenMP runtime that LibTorch brought into the process, so that none are added. Without one, and inside a parallel
/// region, on the calling thread. `work` must not throw.
void for_each_piece(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace firstfault::guard
