// Names of enumerators as the run file holds them. They are part of its format: never change one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "firstfault/events/fact.h"
#include "firstfault/events/origin.h"
#include "firstfault/events/site.h"
#include "firstfault/events/step_row.h"
#include "firstfault/events/transition.h"
#include "firstfault/record/run.h"

namespace firstfault::record {

/// By value of the enumerator. Specialised for each enumeration that is stored.
template <class Enum>
std::span<const std::string_view> stored_names();

template <class Enum>
std::string_view stored_name(Enum value) {
  return stored_names<Enum>()[static_cast<std::size_t>(value)];
}

template <class Enum>
std::optional<Enum> from_stored_name(std::string_view name) {
  const auto names = stored_names<Enum>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template <>
std::span<const std::string_view> stored_names<SiteRole>();
template <>
std::span<const std::string_view> stored_names<Condition>();
template <>
std::span<const std::string_view> stored_names<FactKind>();
template <>
std::span<const std::string_view> stored_names<StepRow::Loss>();
template <>
std::span<const std::string_view> stored_names<Phase>();
template <>
std::span<const std::string_view> stored_names<Outcome>();
template <>
std::span<const std::string_view> stored_names<OperandState>();
template <>
std::span<const std::string_view> stored_names<TensorRole>();
template <>
std::span<const std::string_view> stored_names<GuardAction::Kind>();
template <>
std::span<const std::string_view> stored_names<RunState>();

}  // namespace firstfault::record
