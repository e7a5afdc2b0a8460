// Push and pop of the per-thread stack of open records.
#include "firstfault/live/intercept/frame.h"

#include <algorithm>

namespace firstfault::intercept {

c10::ArrayRef<const c10::IValue> arguments_of(const OpTraits& op, const at::RecordFunction& record) {
  const auto all = record.inputs();
  const auto own = std::min(all.size(), op.arguments.size());
  return all.slice(all.size() - own, own);
}

c10::ArrayRef<c10::IValue> results_of(const OpTraits& op, const at::RecordFunction& record) {
  const c10::ArrayRef<c10::IValue> all(record.outputs());
  const auto own = std::min(all.size(), op.returns);
  return all.slice(all.size() - own, own);
}

Frame& FrameStack::push(const at::RecordFunction& record, const OpTraits& traits, Frame::Type type) {
  if (static_cast<std::size_t>(depth_) == frames_.size()) frames_.push_back(std::make_unique<Frame>());
  Frame& frame = *frames_[depth_++];
  frame.record = &record;
  frame.traits = &traits;
  frame.type = type;
  frame.transparent = frame.hidden = frame.observed = frame.child_bad = false;
  frame.number = 0;
  frame.sequence = -1;
  frame.forward_thread = 0;
  frame.place = kNowhere;
  if (type != Frame::Type::op) ++backward_depth_;
  return frame;
}

Frame* FrameStack::pop(const at::RecordFunction& record) {
  // A record whose start was not seen is not on the stack; one whose end was not seen lies above.
  int at = depth_ - 1;
  while (at >= 0 && frames_[at]->record != &record) --at;
  if (at < 0) return nullptr;
  for (; depth_ > at; --depth_) {
    if (frames_[depth_ - 1]->type != Frame::Type::op) --backward_depth_;
    if (depth_ - 1 > at) {
      frames_[depth_ - 1]->inputs.clear();
      frames_[depth_ - 1]->scalars.clear();
    }
  }
  return frames_[at].get();
}

void FrameStack::clear() {
  for (auto& frame : frames_) {
    frame->inputs.clear();
    frame->scalars.clear();
  }
  depth_ = backward_depth_ = 0;
}

}  // namespace firstfault::intercept
