#include "study/report/report_page.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/cli/table.h"
#include "core/text.h"
#include "study/report/plot.h"

namespace gavel::study {
namespace {

// A section's CSV beyond that is left to --csv.
constexpr size_t kEmbeddedBytesMax = size_t{512} * 1024;

// Okabe and Ito's colours, which colour-blind eyes tell apart; lighter ones on
// dark ground.
constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--bg:#fff;--card:#fff;--ink:#1c2330;--soft:#5b6675;
--line:#e3e7ee;--edge:#9aa5b4;--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b5489a;
--s4:#c28a00;--s5:#3f9fd6;--s6:#6b4fbb;--s7:#7a5230;--s8:#c0392b;--s9:#566573}
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--card:#181d26;--ink:#e6eaf1;
--soft:#9aa7b8;--line:#29313d;--edge:#5d6a7c;--s0:#56a8e8;--s1:#f28b3c;--s2:#3cc9a0;
--s3:#e07cc4;--s4:#f0c23b;--s5:#8ecdf5;--s6:#a78bfa;--s7:#c79a6b;--s8:#ff7b6b;
--s9:#aab7c4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1400px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:26px;margin:0 0 2px}h2{font-size:19px;margin:40px 0 2px}
p{margin:2px 0 12px;color:var(--soft);max-width:80ch}
nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin:10px 0 0}
a{color:var(--s0);text-decoration:none}a:hover{text-decoration:underline}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));
gap:18px}
figure{margin:0;padding:12px 12px 6px;border:1px solid var(--line);border-radius:8px;
background:var(--card)}
figure:only-child{max-width:860px}
svg.plot{display:block;width:100%;height:auto;font-size:12px}
svg text{fill:var(--ink)}svg .title{font-size:14px;font-weight:600}
svg .tick,svg .tick text{fill:var(--soft);font-size:11.5px}svg .small{font-size:9px}
svg .axis{fill:var(--ink);font-size:12.5px}
svg .grid path{stroke:var(--line);fill:none}svg .frame{stroke:var(--edge);fill:none}
svg .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
svg .error{fill:none;stroke:var(--c);stroke-width:1.2;opacity:.7}
svg .dot{fill:var(--c)}svg .cross path{fill:none;stroke:var(--c);stroke-width:2}
svg .diagonal{stroke:var(--edge);stroke-dasharray:4 4;fill:none}
svg .d1 .line{stroke-dasharray:7 3}svg .d2 .line{stroke-dasharray:2 3}
svg .d3 .line{stroke-dasharray:8 3 2 3}
svg .steps .line{stroke-width:1.4;stroke-dasharray:none}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;
width:fit-content;max-width:100%}
.figures+.scroll{margin-top:18px}
table{border-collapse:collapse;font-size:13px;background:var(--card)}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
th{cursor:pointer;color:var(--soft);font-weight:600;position:sticky;top:0;
background:var(--card)}
th:hover{color:var(--ink)}td.text,th.text{text-align:left}
tr:last-child td{border-bottom:0}td.bad{color:var(--s8);font-weight:600}
)css";

// Sorts a table by the column whose title is clicked; again: the other way.
constexpr char kScript[] = R"js(
document.querySelectorAll("table").forEach(t=>{const b=t.tBodies[0];
t.querySelectorAll("th").forEach((h,i)=>h.addEventListener("click",()=>{
const d=h.dataset.d=h.dataset.d==="1"?"-1":"1";
const v=r=>{const x=r.cells[i].textContent,n=parseFloat(x);
return isNaN(n)?x:n};
[...b.rows].sort((p,q)=>{const x=v(p),y=v(q);
const c=typeof x===typeof y?(x<y?-1:x>y?1:0):(typeof x==="number"?-1:1);
return c*d}).forEach(r=>b.append(r))}))});
)js";

bool IsNumber(const std::string& cell) {
  return !cell.empty() && (cell.find_first_of("0123456789") == 0 ||
                           (cell[0] == '-' && cell.size() == 1));
}

// Left-aligned unless all of its cells are numbers.
bool IsTextColumn(const ReportTable& table, size_t column) {
  for (const auto& row : table.rows) {
    if (!IsNumber(row[column])) return true;
  }
  return false;
}

std::string RenderHtmlTable(const ReportTable& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  std::vector<bool> text;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    text.push_back(IsTextColumn(table, i));
    StrAppend(&html, text[i] ? "<th class=\"text\">" : "<th>",
              EscapeHtml(table.titles[i]), "</th>");
  }
  html += "</tr></thead><tbody>";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool bad =
          row[i] == "cannot_drain" || row[i] == "error" || row[i] == "timeout";
      StrAppend(&html,
                bad       ? "<td class=\"text bad\">"
                : text[i] ? "<td class=\"text\">"
                          : "<td>",
                EscapeHtml(row[i]), "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string CsvLink(const ReportSection& section) {
  if (section.csv.empty()) return "";
  if (section.csv.text().size() > kEmbeddedBytesMax) {
    return " Its data: gavel report --csv.";
  }
  std::string data;
  absl::Base64Escape(section.csv.text(), &data);
  return StrCat(" <a download=\"", section.id,
                ".csv\" href=\"data:text/csv;base64,", data, "\">CSV</a>");
}

std::string RenderSection(const ReportSection& section) {
  std::string html =
      StrCat("<section id=\"", section.id, "\"><h2>", EscapeHtml(section.title),
             "</h2><p>", EscapeHtml(section.text), CsvLink(section), "</p>\n");
  for (const std::string& note : section.notes) {
    StrAppend(&html, "<p class=\"note\">", EscapeHtml(note), "</p>\n");
  }
  if (!section.figures.empty()) {
    html += "<div class=\"figures\">";
    for (const std::string& figure : section.figures) {
      StrAppend(&html, "<figure>", figure, "</figure>\n");
    }
    html += "</div>";
  }
  if (!section.table.titles.empty()) html += RenderHtmlTable(section.table);
  return html + "</section>\n";
}

// The colours of series and bars, by number.
std::string ColorRules() {
  std::string css;
  for (int i = 0; i < 10; ++i) {
    StrAppend(&css, ".c", i, "{--c:var(--s", i, ")}.b", i, "{fill:var(--s", i,
              ")}\n");
  }
  return css;
}

}  // namespace

std::string RenderText(const ReportTable& table, const std::vector<bool>& right,
                       size_t width, size_t width_max) {
  std::vector<Column> columns;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    columns.push_back({table.titles[i], right[i], width_max});
  }
  return RenderTable(columns, table.rows, width);
}

std::string RenderMarkdown(const ReportTable& table,
                           const std::vector<bool>& right) {
  std::string text = StrCat("| ", absl::StrJoin(table.titles, " | "), " |\n|");
  for (const bool of_column : right) text += of_column ? "---:|" : "---|";
  text += "\n";
  for (const auto& row : table.rows) {
    StrAppend(&text, "| ", absl::StrJoin(row, " | "), " |\n");
  }
  return text;
}

void Csv::Add(const std::vector<std::string>& cells) {
  const char* comma = "";
  for (const std::string& cell : cells) {
    const bool plain = cell.find_first_of(",\"\r\n") == std::string::npos;
    StrAppend(&text_, comma,
              plain ? cell
                    : StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}),
                             "\""));
    comma = ",";
  }
  text_ += "\n";
  ++rows_;
}

std::string RenderPage(const ReportPage& page) {
  std::string html = StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><link "
      "rel=\"icon\" href=\"data:,\"><title>",
      EscapeHtml(page.title), "</title><style>", kStyle, ColorRules(),
      "</style></head>\n<body><main><h1>", EscapeHtml(page.title), "</h1><p>",
      EscapeHtml(page.summary), "</p><nav>");
  for (const ReportSection& section : page.sections) {
    StrAppend(&html, "<a href=\"#", section.id, "\">",
              EscapeHtml(section.title), "</a>");
  }
  html += "</nav>\n";
  for (const ReportSection& section : page.sections) {
    html += RenderSection(section);
  }
  return StrCat(html, "</main><script>", kScript, "</script></body></html>\n");
}

}  // namespace gavel::study
