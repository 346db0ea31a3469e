// Reads the tables of a TOML file key by key, with an error that points into
// the file: "SOURCE:LINE:COLUMN: what; remedy". The parsers of specs are
// written with it, here and in the simulator.
//
// Errors are sticky and shared: all readers of a file write to one Status,
// which keeps the first. Not thread-safe; readers borrow the table, the source
// and the status.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TOML_READER_H_
#define GAVEL_COORDINATOR_WORKLOAD_TOML_READER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/toml_library.h"

namespace gavel {

// The root table of `text`. INVALID_ARGUMENT for what is not TOML or longer
// than `bytes_max`.
absl::StatusOr<toml::table> ParseToml(std::string_view text,
                                      std::string_view source,
                                      size_t bytes_max);

class TomlReader {
 public:
  // A key without a row is an error, with the closest one as remedy; so is a
  // required one that is missing. The rows outlive the reader.
  TomlReader(const toml::table& table, std::string_view source,
             std::span<const FileKey> keys, absl::Status& status);
  // The table under `heading` of a file of `tables`: as above. A key of another
  // table is an error that says where it belongs, also where users choose the
  // keys: TOML gives a key to the header above it, so one that was written too
  // late would become an accelerator type or a variable. In braces ({...}) the
  // user has named the table, and chooses any key.
  TomlReader(const toml::table& table, std::string_view source,
             std::span<const FileTable> tables, std::string_view heading,
             absl::Status& status);
  // A key that is not `known` is an error, with the closest one as remedy.
  TomlReader(const toml::table& table, std::string_view source,
             std::initializer_list<std::string_view> known,
             absl::Status& status);
  // Any key is accepted: a table of names that the user chooses.
  TomlReader(const toml::table& table, std::string_view source,
             absl::Status& status);

  // Each leaves `out` as it is when the key is missing or wrong; true when it
  // was read.
  bool Read(std::string_view key, std::string& out);  // without NUL
  bool Read(std::string_view key, std::vector<std::string>& out);
  bool Read(std::string_view key, int64_t& out, int64_t min, int64_t max);
  bool Read(std::string_view key, int& out, int min, int max);
  bool Read(std::string_view key, double& out, const NumberRange& range);
  bool Read(std::string_view key, bool& out);
  // Within the range of the key's row, which must be there.
  bool Read(std::string_view key, int& out);
  bool Read(std::string_view key, uint64_t& out);
  bool Read(std::string_view key, double& out);
  bool Read(std::string_view key, std::optional<double>& out);
  // As Read of a string, but it must be a name (job_spec.h, IsValidName).
  bool ReadName(std::string_view key, std::string& out);

  // The table under `key`; null when it is missing or wrong.
  const toml::table* Table(std::string_view key);
  // The tables of [[key]], in order.
  std::vector<const toml::table*> Tables(std::string_view key);
  // All keys, in the order of their bytes.
  std::vector<std::string> Keys() const;

  bool Has(std::string_view key) const { return table_.contains(key); }
  // An error unless the key is there; `example` is the remedy.
  void Require(std::string_view key, std::string_view example);
  // An error at the value of `key`, or at the table when it is missing.
  void Fail(std::string_view key, std::string_view what);
  // An error at the table.
  void FailHere(std::string_view what) { FailAt(table_.source(), what); }

 private:
  void FailAt(const toml::source_region& place, std::string_view what);
  void RefuseUnknownKeys(const std::vector<std::string_view>& known);
  void RefuseKeysOfOthers(std::span<const FileTable> tables,
                          std::string_view heading);
  void CheckKeys();  // against keys_
  // The value under `key`; null when it is missing or, an error, of another
  // type than `expected` in words.
  template <class T>
  auto Value(std::string_view key, std::string_view expected);
  // The row of `key`; asserts that there is one, of this kind.
  const FileKey& RowOf(std::string_view key, KeyKind kind) const;
  bool CheckString(std::string_view key, const toml::node& node);
  // Says that `key` is of another type than expected.
  void WrongType(std::string_view key, const toml::node& node,
                 std::string_view expected);

  const toml::table& table_;
  std::string_view source_;
  absl::Status& status_;
  std::span<const FileKey> keys_;  // empty: the caller gives ranges itself
};

// Errors at scale_factor_min and scale_factor_max of a job unless
// min <= now <= max; 0: `now`.
void CheckScaleFactors(int min, int now, int max, TomlReader& reader);

// The key `visibility` of a job or server: whether its processes see the
// accelerator of their lease only.
bool ReadVisibility(TomlReader& reader);

// The word closest to `word` by edits, or empty when none is close.
std::string_view ClosestWord(std::string_view word,
                             const std::vector<std::string_view>& words);

// `text` between double quotes, escaped as a basic string of TOML.
std::string QuoteToml(std::string_view text);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TOML_READER_H_
