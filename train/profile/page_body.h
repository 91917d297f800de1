// The frame that the script of the profile's page fills in.
#pragma once

namespace duet {

inline constexpr const char* kProfileBody = R"html(
<p class="lead" id="model"></p>
<p class="lead" id="how"></p>
<noscript><p><strong>This page draws itself with a script of its own; allow scripts to see it.</strong></p></noscript>
<dl class="facts" id="facts"></dl>
<p id="grown" hidden></p>
<details><summary>The configuration</summary><div class="wide"><table id="config"></table></div></details>

<h2>Largest owners at the peak</h2>
<div class="wide"><table id="owners"><thead><tr><th scope="col">scope</th><th scope="col">scopes</th>
<th scope="col" class="text">kind</th><th scope="col">bytes</th><th scope="col">share</th><th class="of-bar" aria-label="size"></th></tr></thead>
<tbody></tbody><tfoot><tr></tr></tfoot></table></div>

<h2>Live bytes over the step</h2>
<p class="caption">At most <span id="total-timeline"></span>. Where several events share a pixel, the highest
is drawn. Drag to look closer; with the keyboard: arrows go from event to event, + and - zoom, p is the peak,
Escape shows the whole step.</p>
<div class="controls" id="views"></div>
<div class="plot"><canvas id="timeline" tabindex="0" role="slider" aria-label="Events of the step"
aria-valuemin="1"></canvas><div class="mark" hidden></div><div class="range" hidden></div></div>
<p class="readout" id="event"></p>
<div class="wide" id="legend-box"><table id="legend"><thead><tr><th scope="col">kind</th>
<th scope="col">at the peak</th><th scope="col">at the cursor</th></tr></thead><tbody></tbody></table></div>

<h2>Scopes</h2>
<p class="caption">At the peak, a scope holds what the scopes inside it hold and its own bytes: all scopes' own
bytes sum to <span id="total-tree"></span>. The columns of kinds show the most of that kind that was ever live
at once in the scope, whether or not at the peak.</p>
<div class="controls"><label for="depth">Unfold to depth</label><select id="depth"></select>
<span class="hint">A column's title sorts within each scope; a click on a line folds it.</span></div>
<div class="wide"><table id="tree"><thead><tr></tr></thead><tbody></tbody></table></div>

<h2>Blocks at the peak</h2>
<p class="caption" id="map-words"></p>
<p class="caption" id="map-how">One line per segment, in order of their making; its blocks in order of address. Blocks that
share a pixel share its height.</p>
<div class="controls"><button type="button" id="scale" aria-pressed="false">Each segment at full width</button></div>
<ul class="keys" id="map-keys"></ul>
<div class="wide" id="map-box"><table id="map"><thead><tr><th scope="col">segment</th><th scope="col">bytes</th>
<th scope="col">free</th><th scope="col">blocks</th><th scope="col" class="text">picture</th></tr></thead>
<tbody></tbody></table></div>
<div class="controls"><button type="button" id="more-segments" hidden></button></div>
<div id="tip" role="tooltip" hidden></div>
)html";

}  // namespace duet
