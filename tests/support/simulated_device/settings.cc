#include "tests/support/simulated_device/settings.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace gavel::simulated {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

uint64_t Number(std::string_view key, std::string_view value) {
  uint64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  TORCH_CHECK(error == std::errc() && rest == end, kVariable, ": ", key, " = '",
              value, "' is not a number");
  return number;
}

void Set(std::string_view key, std::string_view value, Settings& settings) {
  if (key == "devices") {
    settings.devices = static_cast<int>(Number(key, value));
  } else if (key == "memory_mib") {
    settings.memory_bytes = Number(key, value) * kMib;
  } else if (key == "context_mib") {
    settings.context_bytes = Number(key, value) * kMib;
  } else if (key == "delay_us") {
    settings.delay_us = static_cast<int64_t>(Number(key, value));
  } else if (key == "seed") {
    settings.seed = Number(key, value);
  } else if (key == "exclusive") {
    settings.exclusive = Number(key, value) != 0;
  } else if (key == "partitions") {
    settings.partitions = static_cast<int>(Number(key, value));
    TORCH_CHECK(settings.partitions > 0, kVariable, ": at least 1 partition");
  } else if (key == "shared") {
    settings.shared = value;
  } else {
    TORCH_CHECK(false, kVariable, ": there is no setting '", key, "'");
  }
}

// `devices` of the settings become those that the process sees.
void Divide(const char* visible, Settings& settings) {
  settings.devices *= settings.partitions;
  settings.memory_bytes /= static_cast<uint64_t>(settings.partitions);
  TORCH_CHECK(settings.devices <= kDevicesMax, kVariable, ": at most ",
              kDevicesMax, " devices");
  if (visible != nullptr) {
    settings.first = static_cast<int>(Number(kVisible, visible));
    settings.devices = settings.first < settings.devices ? 1 : 0;
  } else if (settings.partitions > 1) {
    settings.devices = std::min(settings.devices, 1);
  }
}

}  // namespace

Settings ParseSettings(std::string_view text, const char* visible) {
  Settings settings;
  settings.devices = 2;
  settings.memory_bytes = 256 * kMib;
  settings.context_bytes = kMib;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = item.find('=');
    TORCH_CHECK(equals != std::string_view::npos, kVariable, ": '", item,
                "' is not KEY=VALUE");
    Set(item.substr(0, equals), item.substr(equals + 1), settings);
  }
  Divide(visible, settings);
  return settings;
}

const Settings& TheSettings() {
  static const Settings& settings = *new Settings([] {
    const char* const text = std::getenv(kVariable);
    return text == nullptr ? Settings()
                           : ParseSettings(text, std::getenv(kVisible));
  }());
  return settings;
}

}  // namespace gavel::simulated
