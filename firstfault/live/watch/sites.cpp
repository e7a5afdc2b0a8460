#include "firstfault/live/watch/sites.h"

#include <algorithm>

namespace firstfault::watch {
namespace {

// NaN stands for "not measured" on either side.
void larger(float& into, float fresh) {
  if (known(fresh) && !(into >= fresh)) into = fresh;
}

void smaller(float& into, float fresh) {
  if (known(fresh) && !(into <= fresh)) into = fresh;
}

}  // namespace

void merge(Health& into, const Health& fresh) {
  if (!into.seen()) {
    into = fresh;
    return;
  }
  if (fresh.row >= 0 && fresh.absmax > into.absmax) into.row = fresh.row;
  into.nonfinite += std::max<std::int64_t>(fresh.nonfinite, 0);
  larger(into.rms, fresh.rms);
  larger(into.absmax, fresh.absmax);
  larger(into.mean, fresh.mean);
  larger(into.saturated, fresh.saturated);
  larger(into.columns, fresh.columns);
  larger(into.varies, fresh.varies);
  smaller(into.zeros, fresh.zeros);
  into.dead = known(fresh.dead) ? fresh.dead : into.dead;
}

}  // namespace firstfault::watch
