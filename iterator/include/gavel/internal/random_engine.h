// The state of a standard random engine or distribution as text. Part of
// gavel/session.h.
#ifndef GAVEL_INTERNAL_RANDOM_ENGINE_H_
#define GAVEL_INTERNAL_RANDOM_ENGINE_H_

#include <istream>
#include <locale>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace gavel::internal {

// Anything with seed() and discard() that can be written and read: the engines
// and engine adaptors of <random>, and what is made like them.
template <class T, class = void>
struct IsRandomEngine : std::false_type {};
template <class T>
struct IsRandomEngine<
    T, std::void_t<
           typename T::result_type, decltype(std::declval<T&>().seed()),
           decltype(std::declval<T&>().discard(1)),
           decltype(std::declval<std::ostream&>() << std::declval<const T&>()),
           decltype(std::declval<std::istream&>() >> std::declval<T&>())>>
    : std::true_type {};

// The distributions of <random>, some of which keep a part of their next value.
template <class T, class = void>
struct IsRandomDistribution : std::false_type {};
template <class T>
struct IsRandomDistribution<
    T, std::void_t<
           typename T::result_type, typename T::param_type,
           decltype(std::declval<T&>().reset()),
           decltype(std::declval<const T&>().param()),
           decltype(std::declval<std::ostream&>() << std::declval<const T&>()),
           decltype(std::declval<std::istream&>() >> std::declval<T&>())>>
    : std::true_type {};

template <class Engine>
std::string EngineText(const Engine& engine) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  stream << engine;
  return stream.str();
}

// False, and nothing changes: not the text of an engine of this type.
template <class Engine>
bool LoadEngine(const std::string& text, Engine& engine) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  Engine loaded = engine;
  // Numbers of a longer engine can be read into a shorter one, but not back.
  if (!(stream >> loaded) || EngineText(loaded) != text) return false;
  engine = loaded;
  return true;
}

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_RANDOM_ENGINE_H_
