"""The style sheet of a report: system fonts, one column on a phone, figures side by side."""

CSS = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #5c5c5c; --line: #dddddd; --warn: #8a4b00; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: var(--ink); background: #fff; margin: 0 auto; padding: 1.5rem; max-width: 84rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; border-bottom: 1px solid var(--line); margin: 2.2rem 0 .8rem;
  padding-bottom: .2rem; overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .6rem; }
h4 { font-size: .95rem; margin: 1.1rem 0 .4rem; }
.lead, figcaption, .note, footer { color: var(--soft); }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0; }
a { color: #00558a; }
.warn { border-left: 4px solid var(--warn); background: #fff7ec; padding: .3rem 1rem;
  max-width: 70rem; }
.warn ul { margin: .4rem 0; padding-left: 1.1rem; }
.figures { display: grid; gap: 1.4rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); }
figure { margin: 0; }
figure img { width: 100%; max-width: 27rem; height: auto; display: block; }
figcaption { font-size: .82rem; line-height: 1.4; margin-top: .3rem; max-width: 27rem; }
figcaption b { color: var(--ink); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .18rem .7rem .18rem 0; text-align: right; vertical-align: top;
  white-space: nowrap; }
th { border-bottom: 1px solid var(--ink); font-weight: 600; white-space: pre-line;
  vertical-align: bottom; }
td { border-bottom: 1px solid #eeeeee; }
.w { text-align: left; }
td.w { white-space: normal; overflow-wrap: anywhere; min-width: 5rem; }
td.w:first-child { white-space: nowrap; }
td.name { text-align: left; white-space: nowrap; }
.swatch { display: inline-block; width: .75em; height: .75em; border-radius: 2px;
  margin-right: .45em; border: 1px solid rgba(0, 0, 0, .35); }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .15rem 1rem;
  font-size: .88rem; max-width: 70rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .4rem 0; }
dd details { margin: 0; }
summary { cursor: pointer; }
pre { background: #f6f6f6; padding: .7rem; overflow: auto; max-height: 30rem; font-size: .8rem;
  line-height: 1.4; }
code { font-size: .85em; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); font-size: .85rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
@media print { details > * { display: block; } .figures { grid-template-columns: 1fr 1fr; } }
"""
