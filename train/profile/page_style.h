// The look of the profile's page, on top of the one all pages have.
#pragma once

namespace duet {

// Kinds have the colours of the lab's arms; temporary bytes are grey, free ones hatched.
inline constexpr const char* kProfileStyle = R"css(
:root { --k0: #8d96a1; --k1: var(--s1); --k2: var(--s2); --k3: var(--s3); --k4: var(--s4); }
.k0 { --c: var(--k0); } .k1 { --c: var(--k1); } .k2 { --c: var(--k2); } .k3 { --c: var(--k3); }
.k4 { --c: var(--k4); }
.swatch.free { background: repeating-linear-gradient(135deg, var(--faint) 0 1.5px, transparent 1.5px 4px);
  box-shadow: inset 0 0 0 1px var(--rule); }
.swatch.line { height: 0; border-top: 2px dashed var(--faint); border-radius: 0; vertical-align: middle;
  background: none; stroke: none; }
[hidden] { display: none !important; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 10px;
  margin: 18px 0; }
dl.facts div { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px;
  padding: 10px 14px; }
dt { color: var(--faint); font-size: 13px; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
dd.main { font-size: 22px; line-height: 1.3; }
dd.more { color: var(--faint); font-size: 13px; }
details { margin: 12px 0; }
summary { cursor: pointer; color: var(--faint); }
details table { width: auto; }
details td:last-child { white-space: normal; overflow-wrap: anywhere; text-align: left; min-width: 160px; }
tbody th { font-weight: 400; }
button, select { font: inherit; font-size: 13px; color: var(--text); background: var(--panel);
  border: 1px solid var(--rule); border-radius: 6px; padding: 3px 10px; cursor: pointer; }
button:hover, select:hover { border-color: var(--faint); }
button[aria-pressed="true"] { background: var(--text); color: var(--page); border-color: var(--text); }
:focus-visible { outline: 2px solid var(--s1); outline-offset: 1px; }
.controls { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 8px 0; }
.controls label, .controls .hint { color: var(--faint); font-size: 13px; }
.bar { display: flex; height: 10px; min-width: 90px; }
.bar i { display: block; background: var(--c); height: 100%; }
.of-bar { width: 22%; } #tree .of-bar { width: 96px; padding: 4px 6px; }
tfoot td, tfoot th { font-weight: 600; border-top: 2px solid var(--rule); }
.plot { position: relative; border: 1px solid var(--rule); border-radius: 8px; overflow: hidden; }
canvas { display: block; width: 100%; touch-action: pan-y; }
#timeline { height: 360px; cursor: crosshair; }
.plot .mark, .plot .range { position: absolute; top: 0; bottom: 0; pointer-events: none; }
.plot .mark { width: 1px; background: var(--text); }
.plot .range { background: var(--text); opacity: 0.16; }
.readout { min-height: 3em; max-width: none; margin: 8px 0; overflow-wrap: anywhere; }
#legend { width: auto; } #legend td, #legend th { padding: 4px 14px 4px 10px; }
#legend-box { display: inline-block; max-width: 100%; }
#tip { position: fixed; z-index: 9; pointer-events: none; max-width: min(380px, calc(100vw - 16px));
  background: var(--page); border: 1px solid var(--faint); border-radius: 6px; padding: 6px 10px;
  font-size: 13px; line-height: 1.4; box-shadow: 0 2px 10px #0004; overflow-wrap: anywhere; }
#tip div:first-child { font-weight: 600; }
#tree th:first-child, #tree td:first-child { position: sticky; left: 0; background: var(--page);
  z-index: 1; max-width: 46vw; overflow: hidden; text-overflow: ellipsis; }
#tree thead th:first-child { background: var(--panel); }
#tree thead th button { all: unset; cursor: pointer; white-space: normal; }
#tree thead th button:focus-visible { outline: 2px solid var(--s1); }
#tree thead th[aria-sort] button::after { content: "▾"; position: absolute; }
#tree thead th[aria-sort="ascending"] button::after { content: "▴"; }
#tree td, #tree tbody th { padding: 4px 7px; } #tree thead th { padding: 7px; min-width: 0; }
#tree { font-size: 14px; }
#tree td.zero { color: var(--faint); opacity: 0.65; }
#tree tbody tr:hover > * { background: var(--panel); }
.fold { border: 0; background: none; padding: 0; width: 22px; text-align: center; color: var(--faint); }
.fold::before { content: "▸"; } .fold[aria-expanded="true"]::before { content: "▾"; }
.leaf { display: inline-block; width: 22px; }
.itself { color: var(--faint); font-style: italic; }
#map-box { max-height: 76vh; overflow-y: auto; }
#map td, #map th { padding: 3px 10px; border-top: 0; } #map thead th { padding: 6px 10px; }
#map thead th { position: sticky; top: 0; z-index: 1; }
#map td.picture { width: 99%; min-width: 200px; padding-right: 12px; }
#map canvas { height: 16px; cursor: crosshair; }
.keys { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; max-width: none; }
@media (max-width: 640px) { #map th:nth-child(3), #map td:nth-child(3), #map th:nth-child(4),
  #map td:nth-child(4) { display: none; } #map td, #map th { padding: 3px 6px; }
  #timeline { height: 280px; } main { padding: 16px 10px 48px; } #owners .of-bar { display: none; }
  #owners td, #owners th { padding: 5px 8px; min-width: 0; }
  #owners tbody th, #owners td.text { white-space: normal; overflow-wrap: anywhere; min-width: 104px; } }
)css";

}  // namespace duet
