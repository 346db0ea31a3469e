// lock_holder RUN_DIRECTORY UUID both|one: takes the lock, prints "held" or the
// error, and holds it until its standard input ends.
#include <iostream>
#include <string>

#include "runtime/device/accelerator_lock.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  gavel::LockSlots slots = std::string(argv[3]) == "both"
                               ? gavel::LockSlots::kBoth
                               : gavel::LockSlots::kOne;
  auto lock = gavel::AcceleratorLock::Acquire(argv[1], argv[2], slots, 0);
  if (lock.ok()) {
    std::cout << "held" << std::endl;
  } else {
    std::cout << lock.status() << std::endl;
  }
  while (std::getchar() != EOF) {
  }
  return lock.ok() ? 0 : 1;
}
