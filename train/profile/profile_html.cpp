// The page of a profile: the JSON, and a script that shows it.
#include "runtime/error.h"
#include "train/html.h"
#include "train/profile/page_body.h"
#include "train/profile/page_map.h"
#include "train/profile/page_script.h"
#include "train/profile/page_style.h"
#include "train/profile/page_timeline.h"
#include "train/profile/page_tree.h"
#include "train/profile/profile.h"

namespace duet {

std::string profile_html(const Profile& profile) {
  const char* title =
      profile.planned ? "Memory of a training step" : "Memory and time of a training step";
  return html_page(
      title, kProfileStyle,
      concat(kProfileBody, "<script id=\"profile-data\" type=\"application/json\">",
             json_in_script(profile_json(profile)), "</script>\n<script>\"use strict\";",
             kProfileScript, kTimelineScript, kTreeScript, kMapScript, "</script>\n"));
}

}  // namespace duet
