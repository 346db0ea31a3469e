#ifndef GAVEL_CORE_SIZE_TEXT_H_
#define GAVEL_CORE_SIZE_TEXT_H_

#include <cstdint>
#include <string>

namespace gavel {

// "3.5 GiB": the largest binary unit of which there is one; from KiB on.
std::string SizeText(uint64_t bytes);

}  // namespace gavel

#endif  // GAVEL_CORE_SIZE_TEXT_H_
