// One object for each thread, for callbacks that may still come when the thread, or the process, is being torn down.
#pragma once

namespace firstfault::intercept {

/// By a pointer that needs no call to be found, where the object itself would. After the destructors of the thread's
/// objects have run (of the main thread's, they run before those of the program's globals) it is made anew and stays.
template <class T>
T& per_thread() {
  [[gnu::tls_model("initial-exec")]] static thread_local T* known = nullptr;
  if (known) return *known;
  static thread_local bool ended = false;
  struct Owner {
    ~Owner() {
      delete known;
      known = nullptr;
      ended = true;
    }
  };
  known = new T;
  if (!ended) {
    static thread_local Owner owner;
    (void)owner;
  }
  return *known;
}

}  // namespace firstfault::intercept
