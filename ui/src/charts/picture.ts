/** A chart as a file: PNG from what is drawn, SVG from its numbers. */
import { colorOf, type ChartLine } from "./Chart";
import { number } from "../lib/format";
import { heightsOf } from "./heights";
import { lonePoints, placed } from "./series";

/** With the page's background, the title above and the lines' names below. */
export function toPng(canvas: HTMLCanvasElement, title: string, lines: readonly ChartLine[]): Promise<Blob | null> {
  const scale = devicePixelRatio || 1;
  const picture = document.createElement("canvas");
  const [head, foot] = [32 * scale, 28 * scale];
  picture.width = canvas.width;
  picture.height = canvas.height + head + foot;
  const draw = picture.getContext("2d");
  if (!draw) return Promise.resolve(null);
  const style = getComputedStyle(document.documentElement);
  draw.fillStyle = style.getPropertyValue("--page");
  draw.fillRect(0, 0, picture.width, picture.height);
  draw.drawImage(canvas, 0, head);
  draw.font = `600 ${13 * scale}px sans-serif`;
  draw.fillStyle = style.getPropertyValue("--ink");
  draw.fillText(title, 12 * scale, 21 * scale, picture.width - 24 * scale);
  draw.font = `${11 * scale}px sans-serif`;
  let x = 12 * scale;
  for (const line of lines) {
    const y = canvas.height + head + 17 * scale;
    draw.fillStyle = colorOf(line.color);
    draw.fillRect(x, y - 7 * scale, 10 * scale, 3 * scale);
    draw.fillText(line.label, x + 14 * scale, y);
    x += draw.measureText(line.label).width + 30 * scale;
  }
  return new Promise((resolve) => picture.toBlob(resolve, "image/png"));
}

const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [800, 400, 64, 40, 56];

/** Built as a document and written out, so that names are escaped by the browser. */
export function toSvg(title: string, lines: readonly ChartLine[], log: boolean): Blob {
  const xs = lines.flatMap((line) => line.points.xs);
  const heights = heightsOf(lines.map((line) => line.points), log, number);
  const drawn = lines.map(({ points }) => placed([points.xs, points.low, points.high], heights));
  const [left, right] = extent(xs);
  const [bottom, top] = extent(drawn.flatMap(([, ...columns]) => columns.flat()).filter((height): height is number => height != null));
  const toX = (x: number): number => LEFT + ((x - left) / (right - left || 1)) * (WIDTH - LEFT - 16);
  const toY = (height: number): number => TOP + (1 - (height - bottom) / (top - bottom || 1)) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", { xmlns: SVG, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "font-family": "sans-serif" });
  svg.append(element("rect", { width: WIDTH, height: HEIGHT, fill: "#fff" }));
  svg.append(text(title, 16, 24, { "font-size": 14, "font-weight": 600 }));
  for (let tick = 0; tick <= 4; tick += 1) {
    const height = bottom + ((top - bottom) * tick) / 4;
    const y = toY(height);
    svg.append(element("line", { x1: LEFT, x2: WIDTH - 16, y1: y, y2: y, stroke: "#e6e6ea" }));
    svg.append(text(heights.say(height), LEFT - 8, y + 4, { "font-size": 11, "text-anchor": "end", fill: "#6a6c78" }));
    const x = left + ((right - left) * tick) / 4;
    svg.append(text(number(x), toX(x), HEIGHT - BOTTOM + 18, { "font-size": 11, "text-anchor": "middle", fill: "#6a6c78" }));
  }
  lines.forEach((line, index) => {
    const color = colorOf(line.color);
    const [places = [], low = [], high = []] = drawn[index] ?? [];
    const path = places.map((x, at) => edge(toX(x as number), low[at], high[at], toY)).join("").split("|").map((part) => part.replace("L", "M")).join("");
    svg.append(element("path", { d: path, fill: "none", stroke: color, "stroke-width": 1.5 }));
    for (const at of lonePoints(high)) svg.append(element("circle", { cx: toX(places[at] as number), cy: toY(high[at] as number), r: 3, fill: color }));
    svg.append(text(line.label, LEFT + index * 150, HEIGHT - 12, { "font-size": 12, fill: color }));
  });
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/** `|` is a gap. */
function edge(x: number, low: number | null | undefined, high: number | null | undefined, toY: (height: number) => number): string {
  if (low == null || high == null) return "|";
  const first = `L${x.toFixed(1)} ${toY(low).toFixed(1)}`;
  return low === high ? first : `${first}L${x.toFixed(1)} ${toY(high).toFixed(1)}`;
}

function extent(values: readonly number[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? [0, 1] : [low, high];
}

const SVG = "http://www.w3.org/2000/svg";

function element(name: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (key !== "xmlns") made.setAttribute(key, String(value));
  return made;
}

function text(content: string, x: number, y: number, attributes: Record<string, string | number>): SVGElement {
  const made = element("text", { x, y, ...attributes });
  made.textContent = content;
  return made;
}
