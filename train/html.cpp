#include "train/html.h"

#include <fmt/format.h>

#include "runtime/terminal_text.h"

namespace duet {
namespace {

// Okabe and Ito's colours, which people with any colour vision tell apart; the first series has the
// colour of the text. Yellow is darkened on the light page.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #ffffff; --text: #1c1e21; --faint: #5f6670; --rule: #dfe3e8;
  --panel: #f6f7f9; --s0: #1c1e21; --s1: #0072b2; --s2: #d55e00; --s3: #00825f; --s4: #b0528a;
  --s5: #2f8fd0; --s6: #b97700; --s7: #7d7200; }
@media (prefers-color-scheme: dark) { :root { --page: #14161a; --text: #e7e9ec; --faint: #a0a7b1;
  --rule: #30353c; --panel: #1c1f25; --s0: #f2f3f5; --s1: #4da3e0; --s2: #ff8a3d; --s3: #2ec79a;
  --s4: #e39ac6; --s5: #8fd0f7; --s6: #f0b432; --s7: #f0e442; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 8px; }
p, ul { margin: 6px 0 10px; max-width: 78ch; }
ul { padding-left: 20px; color: var(--faint); }
.lead, .caption { color: var(--faint); }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap; border-top: 1px solid var(--rule); }
thead th { border-top: 0; background: var(--panel); font-weight: 600; vertical-align: bottom; }
thead th:not(:first-child) { white-space: normal; min-width: 74px; }
th:first-child, td:first-child, .text { text-align: left; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 8px; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.swatch { background: var(--c); }
pre { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px;
  overflow-x: auto; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; }
)css";

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : terminal_text(text)) {  // no name may reorder what stands around it
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string json_in_script(std::string_view json) {
  std::string out;
  for (const char c : json) {  // in JSON a < stands in strings alone
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view style, std::string_view body) {
  return std::string(kPageBegins) +
         fmt::format(
             "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<main>\n"
             "<h1>{0}</h1>\n{3}</main>\n</body>\n</html>\n",
             html_text(title), kStyle, style, body);
}

}  // namespace duet
