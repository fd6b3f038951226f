#include "cli/render/page.h"

#include "absl/strings/str_cat.h"

namespace downpour::cli {
namespace {

constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#1b1f27;--soft:#626b7a;--line:#e1e4ea;
--good:#16794c;--bad:#c3293c;--fair:#96650a}
@media(prefers-color-scheme:dark){:root{--page:#14171d;--card:#1d2129;--ink:#e8eaef;--soft:#9aa3b2;--line:#323843;
--good:#4cc38a;--bad:#ff7a85;--fair:#e3b14b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1200px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:26px;margin:0;overflow-wrap:anywhere}h2{font-size:16px;margin:0 0 10px}header{margin-bottom:18px}header p{margin:6px 0 0;color:var(--soft);overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}.fair{color:var(--fair)}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:0 0 16px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:16px;margin-bottom:16px}.charts .card{margin:0}
figcaption{font-weight:600;margin-bottom:6px}svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.fault{stroke:var(--bad);stroke-width:1.2;stroke-dasharray:4 3;opacity:.75}
path.curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px}th,td{text-align:left;padding:4px 18px 4px 0;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child>*{border-bottom:0}th{color:var(--soft);font-weight:500}.time{white-space:nowrap;font-variant-numeric:tabular-nums}
.figures td{font-variant-numeric:tabular-nums}
.note,.none{color:var(--soft);font-size:13px;margin:8px 0 0}.none{margin:0}
code{overflow-wrap:anywhere}
)css";

}  // namespace

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default: {
        const auto code = static_cast<unsigned char>(c);
        escaped += (code < 0x20 && c != '\n' && c != '\t') || code == 0x7f ? ' ' : c;
      }
    }
  }
  return escaped;
}

std::string RenderPage(const std::string& title, const std::string& style, const std::string& body) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      Escape(title), "</title><style>", kStyle, style, "</style></head>\n<body><main>", body,
      "</main></body></html>\n");
}

}  // namespace downpour::cli
