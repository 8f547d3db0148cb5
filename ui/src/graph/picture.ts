/** The graph as a file of its own: as it is drawn now, without the page's sheets and fonts. */
import type { Area } from "./view";

/** What a sheet says of an element, and what it is where nothing is said. */
const COPIED: Readonly<Record<string, string>> = {
  fill: "", "fill-opacity": "1", stroke: "none", "stroke-width": "1px", "stroke-dasharray": "none", "stroke-linecap": "butt", "stroke-linejoin": "miter", opacity: "1",
};
const COPIED_OF_TEXT = { ...COPIED, "font-size": "", "font-weight": "400" };
const SHAPES = "rect, path, circle, text";

/** All of `drawing` at its own size; what marks a choice on the page (`data-live`) is left out. */
export function toSvg(drawing: SVGSVGElement, { width, height }: Area, label: string): Blob {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const [shown, copied] = [drawing, copy].map((root) => [...root.querySelectorAll<SVGElement>(SHAPES)]) as [SVGElement[], SVGElement[]];
  shown.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const [name, usual] of Object.entries(element.tagName === "text" ? COPIED_OF_TEXT : COPIED)) {
      const value = style.getPropertyValue(name);
      if (value && value !== usual) copied[at]?.setAttribute(name, value);
    }
  });
  for (const element of copy.querySelectorAll("[data-live]")) element.remove();
  for (const element of copy.querySelectorAll("[class], [data-node]")) {
    element.removeAttribute("class");
    element.removeAttribute("data-node");
  }
  copy.removeAttribute("class");
  copy.firstElementChild?.removeAttribute("transform");
  const size = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "aria-label": label };
  for (const [name, value] of Object.entries(size)) copy.setAttribute(name, String(value));
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(document.documentElement).getPropertyValue("--raised").trim());
  copy.prepend(ground);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}
