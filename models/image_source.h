// Where pictures come from: folders of JPEG files, or made up (see
// synthetic_images.h).
#ifndef GAVEL_MODELS_IMAGE_SOURCE_H_
#define GAVEL_MODELS_IMAGE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/rgb_image.h"

namespace gavel::models {

struct LabelledImage {
  RgbImage image;
  int64_t label = 0;  // index of its class
};

// A value; copies share what they read from. `read` may be called by several
// threads at once, with an index below `size`, and depends on that only.
struct ImageSource {
  size_t size = 0;
  std::vector<std::string> classes;  // their names
  std::function<LabelledImage(size_t)> read;
  // Files so far that can't be read, each of which was said once.
  std::function<int64_t()> broken_count;
};

// Called with one line per file that can't be read, perhaps by several threads
// at once.
using WarnFunction = std::function<void(const std::string&)>;

// A folder for each class, named like it, with JPEG files (.jpg, .jpeg, in any
// case), as ImageNet's train/; classes and files in the order of their names,
// other files are ignored. Files are read when they are asked for: in place of
// one that is cut off or damaged the next whole one is taken, and `warn`
// called. NOT_FOUND: no such folder. INVALID_ARGUMENT: no classes, a class
// without images, or not one image that can be read.
absl::StatusOr<ImageSource> OpenImageFolders(const std::string& folder,
                                             WarnFunction warn);

// The same of the files in one folder, whose name is the only class.
absl::StatusOr<ImageSource> OpenImageFolder(const std::string& folder,
                                            WarnFunction warn);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_IMAGE_SOURCE_H_
