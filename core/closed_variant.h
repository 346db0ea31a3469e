// ClosedVariant<std::variant<A, B, …>>: the variant, but its constructors,
// assignments and destructor are compiled in one file, as they are costly to
// compile for dozens of alternatives and used almost everywhere. std::visit,
// std::get, std::get_if and std::holds_alternative take it as any variant. A
// class derived from it can be declared ahead:
//
//   using ShapeVariant = std::variant<Circle, Square>;
//   class Shape : public ClosedVariant<ShapeVariant> {
//    public:
//     using ClosedVariant::ClosedVariant;
//   };
//
// and one file includes core/closed_variant_members.h and has
//
//   template class ClosedVariant<ShapeVariant>;
#ifndef GAVEL_CORE_CLOSED_VARIANT_H_
#define GAVEL_CORE_CLOSED_VARIANT_H_

#include <concepts>
#include <cstddef>
#include <utility>
#include <variant>

namespace gavel {

// The place of T among the alternatives; their number: it is none of them.
template <class T, class V>
constexpr size_t kPlaceIn = 0;
template <class T, class... Each>
constexpr size_t kPlaceIn<T, std::variant<Each...>> = [] {
  size_t place = 0;
  static_cast<void>(((std::same_as<T, Each> || (++place, false)) || ...));
  return place;
}();

template <class V>
class ClosedVariant : public V {
 public:
  ClosedVariant();
  template <class T>
  requires(kPlaceIn<T, V> < std::variant_size_v<V>)  //
      ClosedVariant(T value)
      : ClosedVariant(kPlaceIn<T, V>, &value) {}
  template <size_t place>
  explicit ClosedVariant(std::in_place_index_t<place>)
      : ClosedVariant(std::variant_alternative_t<place, V>{}) {}
  ClosedVariant(const ClosedVariant& other);
  ClosedVariant(ClosedVariant&& other) noexcept;
  ClosedVariant& operator=(const ClosedVariant& other);
  ClosedVariant& operator=(ClosedVariant&& other) noexcept;
  ~ClosedVariant();

 private:
  // Moves the alternative of this place out of *value.
  ClosedVariant(size_t place, void* value);
};

}  // namespace gavel

#endif  // GAVEL_CORE_CLOSED_VARIANT_H_
