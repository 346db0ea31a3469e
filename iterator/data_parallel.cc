#include "gavel/data_parallel.h"

#include <utility>

#include "iterator/session/session_state.h"

namespace gavel {

DataParallel::DataParallel(Session& session,
                           std::shared_ptr<torch::nn::Module> module,
                           DataParallelOptions options)
    : state_(*session.state_), module_(std::move(module)) {
  state_.AddToGang(module_, options.broadcast_buffers);
}

DataParallel::~DataParallel() { state_.RemoveFromGang(module_.get()); }

}  // namespace gavel
