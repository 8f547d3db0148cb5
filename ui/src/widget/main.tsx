/** The job of a notebook's cell: what `torchyard.notebook` sends, drawn as the page draws it.
 *
 * Owns: where it is drawn, in which theme. Leaves: what is drawn to JobView.tsx, reading and
 * refreshing to the kernel.
 * Always: it asks no server for anything; its looks reach nothing outside of it, nor the
 * notebook's it.
 */
import { render as draw } from "preact";
import uplot from "uplot/dist/uPlot.min.css?inline";
import job from "../styles/job.css?inline";
import tokens from "../styles/tokens.css?inline";
import { themeChanged } from "../lib/themeChange";
import { JobView } from "./JobView";
import { isDarkAround } from "./theme";
import type { Model } from "./state";
import own from "./widget.css?inline";

interface Cell {
  model: Model;
  el: HTMLElement;
}

const TRAITS = ["job", "charts", "log", "note"];

function render({ model, el }: Cell): () => void {
  const host = document.createElement("div");
  host.className = "torchyard-run";
  const root = host.attachShadow({ mode: "open" });
  const looks = document.createElement("style");
  looks.textContent = [uplot, tokens, job, own].join("\n");
  const place = document.createElement("div");
  root.append(looks, place);
  el.append(host);

  // The same job, for those who open the notebook without a kernel.
  const saved = document.createElement("style");
  saved.textContent = `.torchyard-saved-${CSS.escape(String(model.get("saved")))} { display: none !important; }`;
  document.head.append(saved);

  const redraw = (): void => draw(<JobView model={model} />, place);
  const followTheme = (): void => {
    const theme = isDarkAround(el) ? "dark" : "light";
    if (host.dataset.theme === theme) return;
    host.dataset.theme = theme;
    themeChanged();
  };
  const events = TRAITS.map((name) => `change:${name}`);
  for (const event of events) model.on(event, redraw);
  const watch = new MutationObserver(followTheme);
  for (const element of [document.documentElement, document.body]) watch.observe(element, { attributes: true });
  followTheme();
  redraw();
  // In the document only now: what is around it can be seen.
  const frame = requestAnimationFrame(followTheme);
  return () => {
    cancelAnimationFrame(frame);
    watch.disconnect();
    for (const event of events) model.off(event, redraw);
    draw(null, place);
    saved.remove();
  };
}

export default { render };
