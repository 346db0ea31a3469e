// The JSON that commands read and write: keys stay in their order.
#ifndef GAVEL_COORDINATOR_CLI_JSON_H_
#define GAVEL_COORDINATOR_CLI_JSON_H_

#include "nlohmann/json.hpp"

namespace gavel {

using Json = nlohmann::ordered_json;

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_JSON_H_
