// Walks the frames of the running Python thread.
#include "python/src/live_places.h"

#include <nanobind/stl/string.h>

#include <algorithm>

namespace nb = nanobind;

namespace firstfault::python {
namespace {

// The interpreter's lock, where this thread has a Python state already; a thread of the backward engine has none.
class Interpreter {
 public:
  Interpreter() : usable_(Py_IsInitialized() && PyGILState_GetThisThreadState() != nullptr) {
    if (!usable_) return;
    state_ = PyGILState_Ensure();
    PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~Interpreter() {
    if (!usable_) return;
    PyErr_Restore(type_, value_, traceback_);
    PyGILState_Release(state_);
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  explicit operator bool() const noexcept { return usable_; }

 private:
  bool usable_;
  PyGILState_STATE state_{};
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

int position_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return PyFrame_GetLineNumber(frame);
#endif
}

int line_of(PyCodeObject* code, int position) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyCode_Addr2Line(code, position);
#else
  (void)code;
  return position;
#endif
}

PyObject* self_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* self = PyFrame_GetVarString(frame, "self");
#else
  PyObject* self = nullptr;
  if (PyObject* locals = PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_locals")) {
    self = PyMapping_GetItemString(locals, "self");
    Py_DECREF(locals);
  }
#endif
  if (!self) PyErr_Clear();
  return self;
}

std::string text_of(PyObject* object, const char* attribute) {
  const nb::object value = nb::getattr(nb::handle(object), attribute, nb::none());
  return nb::isinstance<nb::str>(value) ? nb::cast<std::string>(value) : std::string();
}

std::string folder_of(const char* module) {
  const std::string file = nb::cast<std::string>(nb::module_::import_(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

}  // namespace

FramePlaces::FramePlaces(bool stacks) : stacks_(stacks) {
  const nb::object module_type = nb::module_::import_("torch.nn").attr("Module");
  for (const char* name : {"_wrapped_call_impl", "_call_impl"}) {
    const nb::object code = module_type.attr(name).attr("__code__");
    module_calls_.push_back(reinterpret_cast<PyCodeObject*>(code.inc_ref().ptr()));
  }
  foreign_ = {folder_of("torch"), folder_of("firstfault"), "<frozen "};
}

FramePlaces::~FramePlaces() {
  if (!Py_IsInitialized()) return;
  const nb::gil_scoped_acquire lock;
  for (const auto& place : places_) {
    for (const Line& line : place->stack) Py_DECREF(line.code);
  }
  for (PyCodeObject* code : module_calls_) Py_DECREF(code);
}

void FramePlaces::watch(const std::vector<PyObject*>& modules, std::int32_t first) {
  for (PyObject* module : modules) modules_.emplace(module, first++);
}

std::int32_t FramePlaces::module_in(PyFrameObject* frame, PyCodeObject* code) const {
  if (std::find(module_calls_.begin(), module_calls_.end(), code) == module_calls_.end()) return -1;
  PyObject* self = self_of(frame);
  if (!self) return -1;
  const auto found = modules_.find(self);
  Py_DECREF(self);
  return found == modules_.end() ? -1 : found->second;
}

// Code objects in the result are borrowed from frames that are running.
FramePlaces::Place FramePlaces::read_frames(bool stack) const {
  Place place;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (stack && place.stack.size() < kMaxFrames) place.stack.push_back({code, position_of(frame)});
    if (place.module < 0 && !modules_.empty()) place.module = module_in(frame, code);
    Py_DECREF(code);
    const bool enough = !stack && (place.module >= 0 || modules_.empty());
    PyFrameObject* back = enough ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return place;
}

intercept::PlaceId FramePlaces::here(std::int32_t, bool with_stack) {
  const Interpreter python;
  if (!python) return intercept::kNowhere;
  return intern(read_frames(stacks_ || with_stack));
}

intercept::PlaceId FramePlaces::intern(Place place) {
  std::size_t hash = static_cast<std::size_t>(place.module) * 0x9E3779B97F4A7C15ull;
  for (const Line& line : place.stack) {
    hash = (hash ^ reinterpret_cast<std::size_t>(line.code) ^ static_cast<std::size_t>(line.position) << 32) *
           0x9E3779B97F4A7C15ull;
  }
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (*places_[at->second] == place) return at->second;
  }
  if (places_.size() >= kMaxPlaces) return intercept::kNowhere;
  for (const Line& line : place.stack) Py_INCREF(line.code);
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<intercept::PlaceId>(places_.size());
  places_.push_back(std::make_unique<Place>(std::move(place)));
  by_hash_.emplace(hash, id);
  return id;
}

std::int32_t FramePlaces::module_of(intercept::PlaceId place) const {
  const std::lock_guard lock(mutex_);
  return places_[place]->module;
}

std::vector<SourceFrame> FramePlaces::frames_of(intercept::PlaceId place) {
  const nb::gil_scoped_acquire lock;
  std::vector<SourceFrame> frames;
  for (const Line& line : places_[place]->stack) {
    auto* code = reinterpret_cast<PyObject*>(line.code);
    SourceFrame frame{text_of(code, "co_filename"), line_of(line.code, line.position), text_of(code, "co_name")};
    const bool is_foreign = std::any_of(foreign_.begin(), foreign_.end(), [&](const std::string& folder) {
      return frame.file.compare(0, folder.size(), folder) == 0;
    });
    if (!is_foreign) frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace firstfault::python
