// The data loaders of a program, whose positions are part of its state: of all
// that live, not only of the one that is being trained on. Part of
// gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_LOADER_POSITION_H_
#define GAVEL_INTERNAL_LOADER_POSITION_H_

#include <map>
#include <memory>
#include <string>

#include "gavel/status.h"

namespace gavel::internal {

struct LoaderBook;

// A loader that the sessions of the thread which makes it can find. Its number
// is the lowest that no other loader of this thread has, so it is the same when
// the program is started again.
class GAVEL_EXPORT LoaderPosition {
 public:
  int loader_number() const { return number_; }
  virtual std::string SavePosition() const = 0;
  // False, and nothing changes: a position of other data, seed or order.
  virtual bool LoadPosition(const std::string& position) = 0;

 protected:
  LoaderPosition();
  LoaderPosition(LoaderPosition&& other) noexcept;
  LoaderPosition& operator=(LoaderPosition&&) = delete;
  virtual ~LoaderPosition();
  // Loads what a session has restored for this number, once. At the end of the
  // constructor.
  void TakeRestored();

 private:
  std::shared_ptr<LoaderBook> book_;  // null: moved from
  int number_ = 0;
};

// The positions of this thread's loaders, by number.
std::map<int, std::string> PositionsOfLoaders();
// Loads them into this thread's loaders, and into those that it makes later.
void RestoreLoaders(std::map<int, std::string> positions);

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_LOADER_POSITION_H_
