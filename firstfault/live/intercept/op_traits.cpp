// Finds an op's traits from its schema and from the name lists below, and publishes them once.
#include "firstfault/live/intercept/op_traits.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include "firstfault/live/intercept/op_lists.h"

namespace firstfault::intercept {
namespace {

using namespace lists;

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool is_composite(const c10::FunctionSchema& schema) {
  const auto handle = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

bool is_number(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return is_number(*optional->getElementType());
  return type.kind() == c10::TypeKind::NumberType;
}

void read_arguments(OpTraits& traits, const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    traits.arguments.push_back(arguments[i].name());
    if (i >= 64) continue;
    if (is_number(*arguments[i].type())) traits.numbers |= 1ull << i;
    const auto* alias = arguments[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    traits.written |= 1ull << i;
    if (arguments[i].kwarg_only()) traits.out |= 1ull << i;
  }
  traits.mutates = traits.written != 0;
  traits.returns = schema.returns().size();
}

bool returns_views(const OpTraits& traits, const c10::FunctionSchema& schema) {
  if (traits.mutates || schema.returns().empty()) return false;
  for (const auto& result : schema.returns()) {
    if (!result.alias_info() || result.alias_info()->isWrite()) return false;
  }
  return true;
}

std::string_view without_foreach(std::string_view base) {
  constexpr std::string_view foreach = "_foreach_";
  return starts_with(base, foreach) ? base.substr(foreach.size()) : base;
}

BatchRule batch_rule(const OpTraits& traits, std::string_view base) {
  if (traits.pointwise || kSameShape.count(base)) return BatchRule::broadcast;
  if (base == "mm" || base == "bmm") return BatchRule::product;
  if (base == "addmm" || base == "baddbmm") return BatchRule::product_after_bias;
  if (base == "embedding") return BatchRule::lookup;
  if (base == "linear") return BatchRule::all_but_last;
  if (kBatchFirst.count(base)) return BatchRule::dim_zero;
  if (kReductions.count(base)) return BatchRule::reduction;
  if (kRecurrent.count(base)) return BatchRule::recurrent;
  return BatchRule::unknown;
}

Nonlinearity nonlinearity_of(std::string_view base) {
  const auto found = kNonlinearities.find(base);
  return found == kNonlinearities.end() ? Nonlinearity::none : found->second;
}

BoundRule bound_rule(const OpTraits& traits, std::string_view base) {
  if (traits.composite || !starts_with(traits.name, "aten::")) return BoundRule::none;
  const auto found = kBounds.find(base);
  return found == kBounds.end() ? BoundRule::none : found->second;
}

LossFamily loss_family(std::string_view base) {
  if (kElementwiseLosses.count(base)) return LossFamily::elementwise;
  if (base == "nll_loss_forward" || base == "nll_loss2d_forward") return LossFamily::log_probabilities;
  return LossFamily::none;
}

void read_name(OpTraits& traits, std::string_view base) {
  traits.delegates = traits.composite || kDelegates.count(base) || starts_with(base, "_foreach_");
  traits.pure_write = kPureWrite.count(base);
  traits.constant = kConstants.count(base);
  traits.keeps_finite = kKeepsFinite.count(base);
  traits.scales = base == "mul";
  traits.lift = base == "lift_fresh";
  traits.fills = kFills.count(base);
  const bool attention = starts_with(base, "_scaled_dot_product") && !base.ends_with("_backward");
  traits.passes_inf = kPassesInf.count(base) || attention;
  traits.flips_inf = kFlipsInf.count(base);
  traits.mask_first = kMaskFirst.count(base);
  traits.takes_mask = kTakesMask.count(base) || attention;
  traits.selects = kSelects.count(base);
  traits.keep_operand = traits.mutates && kKeepOperand.count(without_foreach(base));
  traits.pointwise = kPointwise.count(without_foreach(base));
  traits.batch = batch_rule(traits, base);
  traits.reads_out = base == "_local_scalar_dense";
  traits.nonlinearity = traits.composite ? Nonlinearity::none : nonlinearity_of(base);
  traits.loss = loss_family(base);
  traits.bound = bound_rule(traits, base);
  traits.flat = kFlat.count(base);
  traits.routes = base == "topk";
  traits.subtracts = traits.name == "aten::sub";
  traits.rescales = traits.mutates && without_foreach(base) == "mul";
  traits.amp_check = base == "_amp_foreach_non_finite_check_and_unscale";
  traits.amp_update = base == "_amp_update_scale";
  traits.collective = starts_with(traits.name, "c10d::") || starts_with(traits.name, "_c10d_functional");
  if (base == "_ctc_loss") traits.auxiliary = 1u << 1;                       // log_alpha: -Inf by design
  if (attention) traits.auxiliary = ~1u;                                     // logsumexp and RNG state
  if (kBatchNorm.count(base) && !traits.mutates) traits.unmarked = 0b11000;  // running_mean, running_var
}

void find_traits(OpTraits& traits, const at::RecordFunction& record) {
  const auto schema = record.operator_schema();
  if (!schema) return;
  traits.name = schema->name();
  const auto base = base_name(traits.name);
  traits.composite = is_composite(*schema);
  traits.foreign = !traits.composite && !starts_with(traits.name, "aten::");
  read_arguments(traits, *schema);
  if (starts_with(base, "empty") || kAlloc.count(base)) {
    traits.kind = OpKind::alloc;
  } else if (kMetadata.count(base) || returns_views(traits, *schema)) {
    traits.kind = OpKind::view;
  } else {
    traits.kind = OpKind::compute;
  }
  read_name(traits, base);
}

// Records of the engine, of nodes and of Python functions have temporary names: as keys they would never end.
bool has_stable_name(const char* name) {
  if (std::strncmp(name, "aten:", 5) == 0) return true;
  return std::strncmp(name, "autograd::", 10) != 0 && std::strncmp(name, "torch::", 7) != 0 && std::strstr(name, "::");
}

// Open addressing; an entry is published once and never freed, so readers need no lock.
class Cache {
 public:
  const OpTraits& find(const at::RecordFunction& record) {
    const char* name = record.name();
    std::size_t at = hash(name);
    for (;; at = (at + 1) & kMask) {
      const OpTraits* entry = entries_[at].load(std::memory_order_acquire);
      // Keys live for ever, so no temporary name can have the address of one.
      if (!entry) return has_stable_name(name) ? insert(record, at) : no_traits();
      if (entry->key == name) return *entry;
    }
  }

 private:
  static constexpr std::size_t kSize = 8192;
  static constexpr std::size_t kMask = kSize - 1;

  static std::size_t hash(const char* name) {
    return ((reinterpret_cast<std::uintptr_t>(name) >> 3) * 0x9E3779B97F4A7C15ull >> 40) & kMask;
  }

  const OpTraits& insert(const at::RecordFunction& record, std::size_t at) {
    auto fresh = std::make_unique<OpTraits>();
    fresh->key = record.name();
    find_traits(*fresh, record);  // copies the schema: outside the lock
    const std::lock_guard lock(mutex_);
    for (;; at = (at + 1) & kMask) {
      const OpTraits* entry = entries_[at].load(std::memory_order_acquire);
      if (entry && entry->key == fresh->key) return *entry;
      if (entry) continue;
      if (used_ > kSize * 3 / 4) return no_traits();
      ++used_;
      entries_[at].store(fresh.get(), std::memory_order_release);
      return *fresh.release();
    }
  }

  std::array<std::atomic<const OpTraits*>, kSize> entries_{};
  std::size_t used_ = 0;
  std::mutex mutex_;
};

}  // namespace

std::string_view base_name(std::string_view name) noexcept {
  if (const auto colon = name.rfind("::"); colon != std::string_view::npos) name.remove_prefix(colon + 2);
  const bool dunder = name.size() > 2 && name.substr(name.size() - 2) == "__";
  if (!dunder && name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return name;
}

const OpTraits& no_traits() noexcept {
  static const OpTraits traits;
  return traits;
}

const OpTraits& custom_function_traits() noexcept {
  static const OpTraits traits;
  return traits;
}

const OpTraits& traits_of(const at::RecordFunction& record) {
  static Cache& cache = *new Cache;  // never destroyed: callbacks may outlive static destruction
  return cache.find(record);
}

}  // namespace firstfault::intercept
