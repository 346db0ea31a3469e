#include "coordinator/engine/reason.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <concepts>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/closed_variant_members.h"
#include "core/text.h"

namespace gavel {

template class ClosedVariant<ReasonVariant>;

namespace {

std::string Ordinal(int number) {
  const int tens = number % 100;
  const char* suffix = "th";
  if (tens < 11 || tens > 13) {
    if (number % 10 == 1) suffix = "st";
    if (number % 10 == 2) suffix = "nd";
    if (number % 10 == 3) suffix = "rd";
  }
  return StrCat(number, suffix);
}

// The remedy for an error that users of a shared machine often meet first, as
// part of a sentence; empty for any other error line.
std::string_view RemedyOf(std::string_view error_line) {
  if (error_line.find("error while loading shared libraries") !=
      std::string_view::npos) {
    return "see that the job's user can read the library on that server: a "
           "LibTorch below another user's home, such as root's, it can't; ";
  }
  return "";
}

// A program that starts well gives a sign or reads a byte more often than this,
// so a shorter silence is not reported.
constexpr double kIdleStartToTell_s = 30;

// A person thinks for so long between two commands.
constexpr double kIdleToTell_s = 60;

// "1.2 of 3.4 GB", both in the unit of the whole.
std::string BytesOf(double done, double total) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (total >= 1000 && unit + 1 < std::size(kUnits)) {
    total /= 1000;
    done /= 1000;
    ++unit;
  }
  return unit == 0
             ? absl::StrFormat("%.0f of %.0f bytes", done, total)
             : absl::StrFormat("%.1f of %.1f %s", done, total, kUnits[unit]);
}

}  // namespace

namespace reason {

std::string ArrayLimit::Sentence() const {
  return StrCat("waiting: for other elements of array ", array.value(),
                at_once > 0 ? StrCat(", at most ", at_once, " at once")
                            : ", as many as the cluster runs are before it");
}

std::string Priority::Sentence() const {
  return absl::StrFormat(
      "waiting: %s in line for %s, %.0f %% of its share received",
      Ordinal(place), type, received_percent);
}

std::string Starting::Sentence() const {
  std::string text = StrCat("starting on ", server);
  if (!failures.empty()) StrAppend(&text, " again: ", failures);
  if (silent_s < kIdleStartToTell_s) return text;
  StrAppend(&text, absl::StrFormat(
                       ": for %.0f s its process has given no sign and read no "
                       "byte, and it is ended after %.0f s; does a file system "
                       "hang that it needs, such as its checkpoint_directory?",
                       silent_s, silent_s_max));
  return text;
}

std::string HeldFailures::Sentence() const {
  std::string how = end < 0    ? StrCat("killed by signal ", -end)
                    : end == 0 ? "ended with code 0 without Finish(); let it "
                                 "end with `return session->Finish()`, and let "
                                 "no shell hide its exit code"
                               : StrCat("exit code ", end);
  // EX_TEMPFAIL; core/messages.h has it as kExitEvicted.
  if (end == 75) StrAppend(&how, ", which nobody had asked for");
  if (!last_error.empty()) StrAppend(&how, ", \"", last_error, "\"");
  const std::string often =
      failures == 1
          ? "once"
          : StrCat(failures, " times in a row without a new checkpoint");
  return StrCat("held: failed ", often, " (last: ", how, "); ",
                RemedyOf(last_error), "read `gavel logs ", job.value(),
                "`, then `gavel release ", job.value(), "`");
}

std::string HeldLaunch::Sentence() const {
  return StrCat("held: could not be started",
                error.empty() ? "; `gavel why` tells its owner more"
                              : StrCat(": ", error));
}

std::string Tried::Sentence() const {
  std::string text = StrCat("tried ", what, ": ", became);
  if (value > 0 && became != "on trial") {
    StrAppend(&text, absl::StrFormat(" at %.2f times the rate before", value));
  }
  if (cost_s > 0) {
    StrAppend(&text, absl::StrFormat(", for %.0f accelerator-seconds", cost_s));
  }
  return text;
}

std::string RunningInteractive::Sentence() const {
  std::string text = StrCat("running on ", type,
                            ", which it has until its end: it is "
                            "interactive");
  if (idle_s < kIdleToTell_s) return text;
  StrAppend(&text, absl::StrFormat("; idle for %.0f s, and ended after %.0f s "
                                   "(idle_limit)",
                                   idle_s, idle_s_max));
  return text;
}

std::string WaitsForEnd::Sentence() const {
  const std::string text =
      StrCat("waiting: ", is_interactive ? "interactive" : "opaque", " job ",
             holder.value(), " keeps its ", what, " until it ends");
  if (!at.empty()) {
    return StrCat(text, ", by ", at, " at the latest (its time_limit)");
  }
  return is_interactive ? text : text + "; it has no time_limit";
}

std::string Cancelled::Sentence() const {
  return StrCat("cancelled by ",
                by.empty() ? "its user" : StrCat("operator ", by));
}

std::string HeldByUser::Sentence() const {
  return StrCat("held: by `gavel hold`",
                by.empty() ? "" : StrCat(" of operator ", by),
                "; `gavel release ", job.value(), "` lets it go on");
}

std::string AwaitsJobs::Sentence() const {
  std::string text = StrCat("waiting: for job ", first);
  if (more > 0) StrAppend(&text, " and ", more, " more");
  return StrCat(text, "; `gavel release ", job.value(),
                "` lets it start without them");
}

std::string HeldHungLaunch::Sentence() const {
  return StrCat("held: its launch came to nothing ", launches,
                " times, at last ", where, why.empty() ? "" : ": ", why,
                "; see that its working_directory and its program can be read "
                "there, then `gavel release ",
                job.value(), "`");
}

std::string Moving::Sentence() const {
  std::string text = StrCat("moving from ", way);
  if (bytes_total > 0) StrAppend(&text, ": ", BytesOf(bytes_done, bytes_total));
  return text;
}

std::string HeldFetch::Sentence() const {
  return absl::StrFormat(
      "held: its checkpoint was to move from %s, but no bytes came for %.0f s, "
      "%d times in a row; see that these servers reach each other (the agents' "
      "--address), then `gavel release %d`",
      moved.way, silent_s, attempts, moved.job.value());
}

}  // namespace reason

namespace {

// Stands for a field of any type.
struct Any {
  template <class T>
  operator T() const;
};

template <class R>
auto FieldsOf(R& reason) {
  using T = std::remove_const_t<R>;
  if constexpr (requires(Any any) { T{any, any, any, any}; }) {
    auto& [a, b, c, d] = reason;
    return std::tie(a, b, c, d);
  } else if constexpr (requires(Any any) { T{any, any, any}; }) {
    auto& [a, b, c] = reason;
    return std::tie(a, b, c);
  } else if constexpr (requires(Any any) { T{any, any}; }) {
    auto& [a, b] = reason;
    return std::tie(a, b);
  } else if constexpr (requires(Any any) { T{any}; }) {
    auto& [a] = reason;
    return std::tie(a);
  } else {
    return std::tuple<>();
  }
}

// `call(field, slot)` for each field of a reason.
template <class Row, class F>
void ForEachSlot(auto& reason, Row& row, F call) {
  const auto fields = FieldsOf(reason);
  const auto slots = std::tie(row.text, row.first, row.second, row.detail);
  [&]<size_t... i>(std::index_sequence<i...>) {
    (call(std::get<i>(fields), std::get<i>(slots)), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
}

// ---- conversion of fields to slots and sentences, and of slots to fields

const std::string& ValueOf(const reason::OwnersText& text) { return text; }
uint64_t ValueOf(JobId id) { return id.value(); }
std::string ValueOf(const reason::JobAndWay& moved) {
  return StrCat(moved.job.value(), " ", moved.way);
}
template <class T>
const T& ValueOf(const T& field) {
  return field;
}

void Read(const std::string& slot, std::string& field) { field = slot; }
void Read(double slot, double& field) { field = slot; }

template <std::integral T>
void Read(const std::string& slot, T& field) {
  if (!absl::SimpleAtoi(slot, &field)) field = 0;
}

template <std::integral T>
void Read(double slot, T& field) {
  // A damaged row may hold any number.
  constexpr double kMost = std::is_signed_v<T> ? 1e9 : 1e18;
  constexpr double kLeast = std::is_signed_v<T> ? -1e9 : 0;
  field =
      std::isnan(slot) ? 0 : static_cast<T>(std::clamp(slot, kLeast, kMost));
}

void Read(const auto& slot, JobId& field) {
  uint64_t value = 0;
  Read(slot, value);
  field = JobId(value);
}

void Read(const std::string& slot, reason::JobAndWay& field) {
  const size_t space = std::min(slot.find(' '), slot.size());
  Read(slot.substr(0, space), field.job);
  field.way = slot.substr(std::min(space + 1, slot.size()));
}

template <class R>
std::string SentenceOf(const R& reason) {
  if constexpr (requires { reason.Sentence(); }) {
    return reason.Sentence();
  } else {
    return std::apply(
        [](const auto&... field) {
          std::string sentence;
          const bool fits = absl::FormatUntyped(
              &sentence, absl::UntypedFormatSpec(ToAbsl(R::kSentence)),
              {absl::FormatArg(ValueOf(field))...});
          assert(fits);
          return sentence;
        },
        FieldsOf(reason));
  }
}

template <size_t... index>
std::vector<Reason> OneOfEach(std::index_sequence<index...>) {
  return {Reason(std::in_place_index<index>)...};
}

}  // namespace

std::string_view ReasonName(const Reason& reason) {
  return std::visit([](const auto& r) { return r.kName; }, reason);
}

std::string RenderReason(const Reason& reason) {
  return std::visit([](const auto& r) { return SentenceOf(r); }, reason);
}

Reason ForOthers(Reason reason) {
  const auto clear = []<class T>(T& field) {
    if constexpr (std::same_as<T, reason::OwnersText>) field.clear();
  };
  std::visit(
      [&](auto& r) {
        std::apply([&](auto&... field) { (clear(field), ...); }, FieldsOf(r));
      },
      reason);
  return reason;
}

ReasonRow ToReasonRow(const Reason& reason) {
  ReasonRow row{reason.index()};
  const auto write = [](const auto& field, auto& slot) {
    if constexpr (std::same_as<decltype(slot), double&>) {
      slot = static_cast<double>(ValueOf(field));
    } else {
      slot = StrCat(ValueOf(field));
    }
  };
  std::visit([&](const auto& r) { ForEachSlot(r, row, write); }, reason);
  return row;
}

std::optional<Reason> FromReasonRow(const ReasonRow& row) {
  static const std::vector<Reason> kEmpty =
      OneOfEach(std::make_index_sequence<std::variant_size_v<ReasonVariant>>());
  if (row.code >= kEmpty.size()) return std::nullopt;
  Reason reason = kEmpty[row.code];
  const auto read = [](auto& field, const auto& slot) { Read(slot, field); };
  std::visit([&](auto& r) { ForEachSlot(r, row, read); }, reason);
  return reason;
}

}  // namespace gavel
