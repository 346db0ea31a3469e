// docs/files.md, from the table of keys that the parsers use (file_keys.h).
// Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_FILES_DOCUMENT_H_
#define GAVEL_COORDINATOR_COMMAND_FILES_DOCUMENT_H_

#include <string>

namespace gavel {

std::string FilesDocument();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_FILES_DOCUMENT_H_
