#ifndef DOWNPOUR_CLI_RENDER_TESTING_MARKUP_H_
#define DOWNPOUR_CLI_RENDER_TESTING_MARKUP_H_

#include <cctype>
#include <set>
#include <string>
#include <vector>

// For tests of the pages.
namespace downpour::cli::testing {

inline constexpr char kHostile[] =
    "</title><script src='http://x'>alert(\"1\")</script><img onerror=y>&amp;\x1b\x01\xff";

// Reads a page as markup: every element known and closed in order, attributes known and quoted. Returns what is wrong,
// or nothing; `text` gets the text between the tags.
inline std::string CheckMarkup(const std::string& page, std::string* text) {
  const std::set<std::string> elements = {
      "html", "head",  "title", "style",  "body",       "main", "header",  "section", "h1",   "h2",     "p",
      "span", "div",   "b",     "figure", "figcaption", "svg",  "line",    "text",    "path", "circle", "rect",
      "g",    "table", "tr",    "th",     "td",         "code", "details", "summary", "pre",  "meta"};
  std::vector<std::string> open;
  std::size_t at = page.find('\n');  // after the doctype
  while (at < page.size()) {
    if (page[at] != '<') {
      *text += page[at++];
      continue;
    }
    const bool closing = page[at + 1] == '/';
    std::size_t end = at + (closing ? 2 : 1);
    std::string name;
    while (end < page.size() && std::isalnum(static_cast<unsigned char>(page[end])) != 0) name += page[end++];
    if (elements.count(name) == 0) return "unknown element " + page.substr(at, 40);
    bool self_closed = name == "meta";
    while (end < page.size() && page[end] != '>') {
      if (page[end] == '/') {
        self_closed = true;
        ++end;
        continue;
      }
      if (page[end] == ' ') {
        ++end;
        continue;
      }
      std::string attribute;
      while (end < page.size() && (std::isalnum(static_cast<unsigned char>(page[end])) != 0 || page[end] == '-')) {
        attribute += page[end++];
      }
      if (attribute.empty() || attribute.rfind("on", 0) == 0 || attribute == "src" || attribute == "href") {
        return "attribute " + attribute + " in " + page.substr(at, 80);
      }
      if (page.compare(end, 2, "=\"") != 0) return "no quoted value in " + page.substr(at, 80);
      const std::size_t quote = page.find('"', end + 2);
      const std::string value = page.substr(end + 2, quote - end - 2);
      if (value.find('<') != std::string::npos) return "raw < in " + page.substr(at, 80);
      if ((name == "line" || name == "path" || name == "rect" || name == "circle") &&
          (value.find("nan") != std::string::npos || value.find("inf") != std::string::npos)) {
        return "no number in " + page.substr(at, 120);
      }
      end = quote + 1;
    }
    if (closing) {
      if (open.empty() || open.back() != name) return "unexpected </" + name + ">";
      open.pop_back();
    } else if (!self_closed) {
      open.push_back(name);
    }
    at = end + 1;
    if (name == "style" && !closing) at = page.find("</style>", at);
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

}  // namespace downpour::cli::testing

#endif  // DOWNPOUR_CLI_RENDER_TESTING_MARKUP_H_
