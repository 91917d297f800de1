// Pages that need nothing else: no file, no font, no network. What all of them share: the frame,
// the look, and text made safe to stand in it.
#pragma once

#include <string>
#include <string_view>

namespace duet {

// How every page begins.
inline constexpr std::string_view kPageBegins =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";

std::string html_text(std::string_view text);  // & < > " escaped

// JSON that may stand in a <script type="application/json">: nothing in it ends or opens an
// element, and it reads back as the same. Requires JSON.
std::string json_in_script(std::string_view json);

// The whole page, light or dark as the reader has it. `title` is also its heading; it is escaped,
// `style` and `body` are not.
std::string html_page(std::string_view title, std::string_view style, std::string_view body);

}  // namespace duet
