#include "coordinator/command/command_pages.h"
#include "coordinator/workload/file_keys.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kIntroduction[] =
    R"md(# Job files and cluster files: every key

`gavel help --files` prints this page, from the table that the parsers use. Both files are TOML 1.0. A key that is not
listed here is an error that names its line and the nearest key that there is; so is a value of another type or outside
its range, and a key that is written behind the header of another table than its own: keys of the top belong above the
first header. In braces (`environment = { entity = "x" }`) a variable, a type or a price may have any name.

)md";

constexpr char kJobFile[] = R"md(## `job.toml`

What `gavel submit`, `gavel local` and `gavel what-if` read: one job. At most 48 KiB.

```toml
name = "digits"
command = ["train_image", "--epochs", "20"]
weight = 2.0
[throughputs]
v100 = 45.5
```

)md";

constexpr char kClusterFile[] = R"md(## `cluster.toml`

What `gavel agent --cluster`, `gavel coordinator --cluster` and `gavel local --cluster` read: servers with their
accelerators, and how they are scheduled.

```toml
[scheduling]
policy = "max_min_fairness_perf"
[[server]]
name = "here"
[[server.accelerator]]
type = "cpu"
count = 2
```

)md";

}  // namespace

std::string FilesDocument() {
  std::string text =
      StrCat(kIntroduction, kJobFile, FormatFileTables(JobFileTables()),
             kClusterFile, FormatFileTables(ClusterFileTables()));
  text.pop_back();  // the empty line behind the last table
  return text;
}

}  // namespace gavel
