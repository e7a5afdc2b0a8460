// firstfault._live: what Guard for Python is made of. No logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/guard/limits.h"
#include "firstfault/guard/looked_into.h"
#include "firstfault/guard/policy.h"
#include "firstfault/guard/result_bound.h"
#include "firstfault/guard/snapshot_schedule.h"
#include "firstfault/live/guard/copies.h"
#include "firstfault/live/guard/left_over.h"
#include "firstfault/live/guard/random_state.h"
#include "firstfault/live/guard/replay.h"
#include "firstfault/live/guard/step_check.h"
#include "firstfault/live/measure/as_held.h"
#include "firstfault/record/limits.h"
#include "python/src/live_replay.h"

namespace firstfault::python {
namespace {

OnFault on_fault(const std::string& name) {
  constexpr const char* names[] = {"raise", "skip", "rollback", "warn"};
  for (int i = 0; i < 4; ++i) {
    if (name == names[i]) return static_cast<OnFault>(i);
  }
  throw nb::value_error("firstfault.guard: on_fault takes \"raise\", \"skip\", \"rollback\" or \"warn\"");
}

std::unique_ptr<BoundReplayer> make_replayer(nb::object program, guard::StepState& state, BoundWatch* watch,
                                             bool write) {
  return std::make_unique<BoundReplayer>(std::move(program), guard::StepState(state), watch, write);
}

// batch: a callable from a list of tensors to one; begin, end: callables; or None.
guard::Change change_of(const std::string& name, const nb::object& batch, const nb::object& begin,
                        const nb::object& end, bool writes_parameters) {
  guard::Change change;
  change.name = name;
  change.writes_parameters = writes_parameters;
  if (!batch.is_none()) {
    change.batch = [&batch](guard::BatchTensors tensors) {
      const nb::gil_scoped_acquire locked;
      return tensors_of(batch(listed(tensors)));
    };
  }
  const auto called = [](const nb::object& callable) -> std::function<void()> {
    if (callable.is_none()) return {};
    return [&callable] {
      const nb::gil_scoped_acquire locked;
      callable();
    };
  };
  change.begin = called(begin);
  change.end = called(end);
  return change;
}

guard::ReplayResult replay(BoundReplayer& self, const std::string& name, const nb::object& batch,
                           const nb::object& begin, const nb::object& end, bool writes_parameters) {
  const auto change = change_of(name, batch, begin, end, writes_parameters);
  auto& replayer = self.open();
  const nb::gil_scoped_release unlocked;
  return replayer.run(change);
}

guard::Exactness verify(BoundReplayer& self, const guard::ReplayResult& step, int n) {
  auto& replayer = self.open();
  const nb::gil_scoped_release unlocked;
  return replayer.verify(step, n);
}

nb::tuple check_before(guard::StepCheck& self, const nb::list& parameters, std::vector<std::string> names,
                       const nb::list& hyperparameters, double loss, double lr) {
  guard::Before step{tensors_of(parameters), std::move(names), {}, loss, lr};
  for (const nb::handle item : hyperparameters) {
    const auto tuple = nb::cast<nb::tuple>(item);
    step.hyperparameters.push_back({nb::cast<std::string>(tuple[0]), nb::cast<double>(tuple[1]),
                                    nb::cast<double>(tuple[2]), nb::cast<bool>(tuple[3])});
  }
  guard::StepCheck::Answer answer;
  {
    const nb::gil_scoped_release unlocked;
    answer = self.before(step);
  }
  nb::object clip = nb::none();
  if (answer.clip) clip = nb::cast(std::move(*answer.clip));
  return nb::make_tuple(nb::cast(std::move(answer.finding)), clip);
}

// A parameter group of torch's optimizers, as it is now.
guard::UpdateNumbers numbers_of(guard::UpdateRule rule, const nb::dict& group) {
  guard::UpdateNumbers numbers{.rule = rule};
  const auto read = [&](const char* name, double& into) {
    if (group.contains(name) && !nb::try_cast(group[name], into)) numbers.rule = guard::UpdateRule::unknown;
  };
  const auto is = [&](const char* name) {
    return group.contains(name) && PyObject_IsTrue(nb::object(group[name]).ptr()) == 1;
  };
  read("lr", numbers.lr);
  read("weight_decay", numbers.weight_decay);
  read("momentum", numbers.momentum);
  read("dampening", numbers.dampening);
  read("alpha", numbers.alpha);
  double lr_decay = 0;
  read("lr_decay", lr_decay);
  std::pair<double, double> betas;
  if (group.contains("betas") && !nb::try_cast(group["betas"], betas)) numbers.rule = guard::UpdateRule::unknown;
  numbers.beta1 = betas.first, numbers.beta2 = betas.second;
  numbers.decoupled = is("decoupled_weight_decay");
  read("eps", numbers.eps);
  const nb::object parameters = group["params"];
  if (nb::len(parameters) > 0) {
    const auto type = nb::cast<at::Tensor>(parameters[0]).scalar_type();
    numbers.eps = measure::eps_as_held(numbers.eps, type, is("fused"));
  }
  if (is("centered") || is("differentiable") || lr_decay < 0) numbers.rule = guard::UpdateRule::unknown;
  return numbers;
}

// `rule`: the name of torch's class; `groups`: its param_groups.
bool is_bounded(guard::StepCheck& self, std::string_view rule, const nb::list& groups) {
  std::vector<guard::UpdateNumbers> numbers;
  for (const nb::handle group : groups) {
    numbers.push_back(numbers_of(guard::update_rule(rule), nb::cast<nb::dict>(group)));
  }
  return self.is_bounded(numbers);
}

// `names`: of the tensors; `held`: what each is by torch's name of a state, "" for a parameter.
guard::Finding check_after(guard::StepCheck& self, const nb::list& tensors, const std::vector<std::string>& names,
                           const std::vector<std::string>& held, const BoundWatch* watch) {
  const auto all = tensors_of(tensors);
  const nb::gil_scoped_release unlocked;
  std::vector<guard::HeldTensor> results;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto what = held.at(i).empty() ? guard::Held::parameter : guard::held_as(held.at(i));
    results.push_back({all[i], what, names.at(i)});
  }
  if (!watch) return self.after(results);
  return self.after(results, [&](const at::Tensor& tensor) { return watch->observer->wrote_finite(tensor); });
}

void bind_state(nb::module_& m) {
  nb::class_<guard::Copies>(m, "Copies")
      .def("__init__", [](guard::Copies* self, const nb::list& list) { new (self) guard::Copies(tensors_of(list)); })
      .def("restore", &guard::Copies::restore, nb::call_guard<nb::gil_scoped_release>())
      .def("renew", &guard::Copies::renew)
      .def_prop_ro("copies", [](const guard::Copies& self) { return listed(self.copies()); })
      .def_prop_ro("bytes", &guard::Copies::bytes);
  nb::class_<guard::RandomState>(m, "RandomState")
      .def(nb::new_([] { return guard::RandomState::now(); }))
      .def("restore", &guard::RandomState::restore)
      .def("__eq__", [](const guard::RandomState& a, const guard::RandomState& b) { return a == b; });
  nb::class_<guard::LeftOver>(m, "LeftOver")
      .def(nb::init<>())
      .def("begin", [](guard::LeftOver& self, const nb::list& parameters) { self.begin(tensors_of(parameters)); })
      .def("end", [](guard::LeftOver& self, const nb::list& parameters) { self.end(tensors_of(parameters)); });
  nb::class_<guard::StepState>(m, "StepState")
      .def(nb::init<>())
      .def("set_batch", [](guard::StepState& self, const nb::list& list) { self.batch = tensors_of(list); })
      .def("set_parameters",
           [](guard::StepState& self, const nb::list& list, std::vector<std::string> names) {
             self.parameters = tensors_of(list);
             self.names = std::move(names);
             self.gradients.resize(self.parameters.size());
           })
      .def("set_gradients",
           [](guard::StepState& self, guard::LeftOver& left) {
             self.gradients = left.gradients(self.parameters, self.gradients_intact);
           })
      .def_rw("batch_intact", &guard::StepState::batch_intact)
      .def_rw("buffers", &guard::StepState::buffers)
      .def_rw("written", &guard::StepState::written)
      .def_rw("random", &guard::StepState::random)
      .def(
          "result_now",
          [](const guard::StepState& self, const at::Tensor* loss, bool write) {
            return guard::result_now(self, loss ? *loss : at::Tensor(), write);
          },
          nb::arg("loss").none(), nb::arg("write"));
}

void bind_replay(nb::module_& m) {
  nb::class_<guard::ReplayResult>(m, "ReplayResult")
      .def_ro("threw", &guard::ReplayResult::threw)
      .def_ro("error", &guard::ReplayResult::error)
      .def_ro("finite", &guard::ReplayResult::finite)
      .def_ro("bad", &guard::ReplayResult::bad)
      .def_ro("loss", &guard::ReplayResult::loss)
      .def_ro("loss_bits", &guard::ReplayResult::loss_bits)
      .def_ro("gradient_bits", &guard::ReplayResult::gradient_bits)
      .def_ro("result_bits", &guard::ReplayResult::result_bits)
      .def_ro("origins", &guard::ReplayResult::origins)
      .def_ro("seconds", &guard::ReplayResult::seconds)
      .def("same_bits", &guard::ReplayResult::same_bits);
  nb::class_<guard::Exactness>(m, "Exactness")
      .def_ro("exact", &guard::Exactness::exact)
      .def_ro("deterministic", &guard::Exactness::deterministic)
      .def_ro("compiled", &guard::Exactness::compiled)
      .def_ro("replays", &guard::Exactness::replays)
      .def_ro("failed", &guard::Exactness::failed)
      .def_ro("why", &guard::Exactness::why)
      .def_ro("origins", &guard::Exactness::origins);
  nb::class_<BoundReplayer>(m, "Replayer")
      .def(nb::new_(&make_replayer), nb::arg("program"), nb::arg("state"), nb::arg("watch").none(), nb::arg("write"))
      .def("run", &replay, nb::arg("name") = "", nb::arg("batch") = nb::none(), nb::arg("begin") = nb::none(),
           nb::arg("end") = nb::none(), nb::arg("writes_parameters") = false)
      .def("verify", &verify, nb::arg("step"), nb::arg("n"))
      .def_prop_ro("replays", [](BoundReplayer& self) { return self.open().replays(); })
      .def_prop_ro("has_gradients", [](const BoundReplayer& self) { return self.state.has_gradients(); })
      .def("close", &BoundReplayer::close);
}

void bind_policy(nb::module_& m) {
  nb::class_<guard::Finding>(m, "Finding")
      .def_prop_ro("kind", [](const guard::Finding& self) { return std::string(name_of(self.kind)); })
      .def_ro("reason", &guard::Finding::reason)
      .def_ro("names", &guard::Finding::names)
      .def("__bool__", &guard::Finding::faulty);
  nb::class_<guard::Policy>(m, "Policy")
      .def("__init__",
           [](guard::Policy* self, const std::string& on, std::int64_t skips, const std::string& then,
              std::int64_t rollbacks) {
             new (self) guard::Policy({on_fault(on), skips, on_fault(then), rollbacks});
           })
      .def("healthy", &guard::Policy::healthy)
      .def(
          "faulty",
          [](guard::Policy& self, bool written, bool can_undo, std::optional<std::int64_t> would_lose) {
            const guard::Situation situation{written, can_undo, would_lose.has_value(), would_lose.value_or(0)};
            const auto measure = self.faulty(situation);
            const auto why = measure.action == guard::Action::stop ? self.why_stopped(situation) : std::string();
            return nb::make_tuple(std::string(guard::name_of(measure.action)), measure.goes_back,
                                  std::string(measure.undone), why);
          },
          nb::arg("written"), nb::arg("can_undo"), nb::arg("would_lose").none())
      .def("snapshot_to_use", &guard::Policy::snapshot_to_use, nb::arg("snapshots"));
  nb::class_<guard::LookedInto>(m, "LookedInto")
      .def(nb::init<bool, int>(), nb::arg("experiments"), nb::arg("replays"))
      .def("any", &guard::LookedInto::any)
      .def("wants", &guard::LookedInto::wants, nb::arg("fault"), nb::arg("origin").none())
      .def("add", &guard::LookedInto::add, nb::arg("fault"), nb::arg("origin").none())
      .def("may_search", &guard::LookedInto::may_search);
  nb::class_<guard::StepCheck>(m, "StepCheck")
      .def("__init__",
           [](guard::StepCheck* self, double max_norm, bool adaptive, double z, double value, double factor,
              double norm_type, double spike_z) {
             new (self) guard::StepCheck({max_norm, adaptive, z, value, factor, norm_type}, spike_z);
           })
      .def("before", &check_before)
      .def("is_bounded", &is_bounded, nb::arg("rule"), nb::arg("groups"))
      .def("after", &check_after, nb::arg("tensors"), nb::arg("names"), nb::arg("held"), nb::arg("watch").none())
      .def("forget", &guard::StepCheck::forget)
      .def_prop_ro("history", [](const guard::StepCheck& self) { return self.adaptive().history(); })
      .def("restore", [](guard::StepCheck& self, const std::vector<double>& h) { self.adaptive().restore(h); });
}

}  // namespace

void bind_guard(nb::module_& m) {
  bind_state(m);
  bind_replay(m);
  bind_policy(m);
  m.def(
      "eps_as_held",
      [](double eps, const at::Tensor& parameter, bool fused) {
        return measure::eps_as_held(eps, parameter.scalar_type(), fused);
      },
      nb::arg("eps"), nb::arg("parameter"), nb::arg("fused"));
  m.def("all_finite", [](const nb::list& tensors) { return guard::all_finite(tensors_of(tensors)); });
  m.def("reads_anyway", &guard::reads_anyway, nb::arg("made"), nb::arg("step"), nb::arg("snapshot_every"));
  m.def("bits_of", [](const nb::list& tensors) { return guard::bits_of(tensors_of(tensors)); });
  m.def(
      "snapshot_to_drop",
      [](const std::vector<std::pair<std::int64_t, std::int64_t>>& held, std::int64_t now, std::int64_t most_bytes) {
        std::vector<guard::HeldSnapshot> all;
        for (const auto& [step, bytes] : held) all.push_back({step, bytes});
        return guard::snapshot_to_drop(all, now, most_bytes);
      },
      nb::arg("held"), nb::arg("now"), nb::arg("most_bytes"));
  m.attr("MOST_CLIPS") = guard::kMostClips;
  m.attr("MOST_ACTIONS") = record::kMaxActions;
}

}  // namespace firstfault::python
