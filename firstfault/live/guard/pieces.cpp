// at::parallel_for is a template that is serial in a library built without -fopenmp, and -fopenmp would link a runtime
// of the compiler's beside LibTorch's. The entry that compilers call is looked up in the runtime that is there.
#include "firstfault/live/guard/pieces.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

#include <ATen/Parallel.h>

namespace firstfault::guard {
namespace {

using Parallel = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

// Part of libgomp's stable interface; Clang's and Intel's runtimes have it too.
Parallel openmp_parallel() {
  static const auto found = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

// The runtime's barriers, in a form that the thread sanitizer sees.
std::atomic<unsigned> order{0};

struct Shared {
  const std::function<void(std::size_t)>& work;
  std::size_t count;
  std::atomic<std::size_t> next{0};

  void run() {
    for (auto i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
  }
};

}  // namespace

void for_each_piece(std::size_t count, const std::function<void(std::size_t)>& work) {
  Shared shared{work, count};
  const auto threads = std::min(count, static_cast<std::size_t>(at::get_num_threads()));
  const auto parallel = threads > 1 && !at::in_parallel_region() ? openmp_parallel() : nullptr;
  if (!parallel) return shared.run();
  order.fetch_add(1, std::memory_order_release);
  const auto run = [](void* data) {
    order.load(std::memory_order_acquire);
    static_cast<Shared*>(data)->run();
    order.fetch_add(1, std::memory_order_release);
  };
  parallel(run, &shared, static_cast<unsigned>(threads), 0);
  order.load(std::memory_order_acquire);
}

}  // namespace firstfault::guard
