// Common mistakes, which the compiler tells in one sentence: a type that can't
// be tracked, a pointer in the place of a session or a loader. Part of
// gavel/session.h and gavel/iterator.h.
#ifndef GAVEL_INTERNAL_MISTAKES_H_
#define GAVEL_INTERNAL_MISTAKES_H_

#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace torch::nn {
class Module;
}

namespace gavel::internal {

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

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_MISTAKES_H_
