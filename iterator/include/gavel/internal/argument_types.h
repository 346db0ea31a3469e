// Checks of argument types at compile time. Common mistakes give an error of
// one sentence (a type that can't be tracked, a pointer in the place of a
// session or a loader), and random engines are recognized by their functions.
// Part of gavel/session.h and gavel/iterator.h.
#ifndef GAVEL_INTERNAL_ARGUMENT_TYPES_H_
#define GAVEL_INTERNAL_ARGUMENT_TYPES_H_

#include <istream>
#include <iterator>
#include <locale>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace gavel {
class Status;
class Tracking;
}  // namespace gavel

namespace gavel::internal {

// Things of several parts, which say themselves what these are.
template <class T, class = void>
struct HasTrackIn : std::false_type {};
template <class T>
struct HasTrackIn<T, std::enable_if_t<std::is_same_v<
                         Status, decltype(std::declval<T&>().TrackIn(
                                     std::declval<Tracking&>(),
                                     std::declval<const std::string&>()))>>>
    : std::true_type {};

// From whatever no other Track() takes.
struct NotTrackable {
  template <class T,
            std::enable_if_t<
                !std::is_convertible_v<T, std::shared_ptr<torch::nn::Module>>,
                int> = 0>
  NotTrackable(T&&) {
    static_assert(sizeof(T) == 0,
                  "this type can't be tracked as it is: Track() takes modules "
                  "(a holder or a std::shared_ptr), "
                  "optimizers, schedulers, tensors and vectors of them, "
                  "generators, random engines, numbers and std::string; for "
                  "anything else use Track(name, save, load) with functions "
                  "that turn it into bytes and back, or keep it in a tensor");
  }
};

template <class R, class = void>
struct IsRange : std::false_type {};
template <class R>
struct IsRange<R, std::void_t<decltype(std::begin(std::declval<R&>())),
                              decltype(std::end(std::declval<R&>()))>>
    : std::true_type {};

// `object`, which is a T; if it is a pointer, the compiler says one sentence.
template <class T, class Object>
T& ItselfAs(Object& object) {
  if constexpr (std::is_convertible_v<Object&, T&>) {
    return object;
  } else {
    static_assert(std::is_convertible_v<Object&, T&>,
                  "gavel::Iterator takes the session, not a pointer to it: "
                  "gavel::Iterator(*session, loader)");
    return *object;
  }
}

// The begin of a range; if `range` is none, the compiler says one sentence.
template <class R>
auto BeginOf([[maybe_unused]] R& range) {
  if constexpr (IsRange<R>::value) {
    return std::begin(range);
  } else {
    static_assert(IsRange<R>::value,
                  "gavel::Iterator takes a range of batches, with begin() and "
                  "end(): dereference a pointer to a loader, "
                  "gavel::Iterator(*session, *loader)");
    return static_cast<int*>(nullptr);
  }
}
template <class R>
auto EndOf([[maybe_unused]] R& range) {
  if constexpr (IsRange<R>::value) {
    return std::end(range);
  } else {
    return static_cast<int*>(nullptr);
  }
}

// Anything with seed() and discard() that can be written and read: the engines
// and engine adaptors of <random>, and classes made like them.
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

#endif  // GAVEL_INTERNAL_ARGUMENT_TYPES_H_
