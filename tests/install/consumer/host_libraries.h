// What a host program does with libraries of its own that the runtime uses
// inside, too, or that LibTorch does.
#ifndef HOST_LIBRARIES_H_
#define HOST_LIBRARIES_H_

#include <string>

// A line made by all of them; "" when one of them went wrong.
std::string UseLibraries(int number);

#endif  // HOST_LIBRARIES_H_
