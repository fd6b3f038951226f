#ifndef DOWNPOUR_CLI_RENDER_PAGE_H_
#define DOWNPOUR_CLI_RENDER_PAGE_H_

#include <string>

// What the HTML pages have in common: one file each, inline CSS and SVG, no scripts, nothing loaded. All pure.
namespace downpour::cli {

// For element content and quoted attribute values.
std::string Escape(const std::string& text);

// A whole page. `title` is text, `style` is CSS beside that of all pages, `body` is markup.
std::string RenderPage(const std::string& title, const std::string& style, const std::string& body);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_PAGE_H_
