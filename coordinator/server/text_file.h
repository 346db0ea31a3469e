#ifndef GAVEL_COORDINATOR_SERVER_TEXT_FILE_H_
#define GAVEL_COORDINATOR_SERVER_TEXT_FILE_H_

#include <fstream>
#include <sstream>
#include <string>

namespace gavel {

// All of a small file; empty when it can't be read.
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_TEXT_FILE_H_
