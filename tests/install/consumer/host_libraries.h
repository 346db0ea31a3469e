// A host program uses libraries of its own that the runtime or LibTorch also
// uses inside.
#ifndef HOST_LIBRARIES_H_
#define HOST_LIBRARIES_H_

#include <string>

// A line made with all of them; "" if one of them went wrong.
std::string UseLibraries(int number);

#endif  // HOST_LIBRARIES_H_
