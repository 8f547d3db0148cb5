/** Which part of a chart is shown, as the page's address says it: `zoom=loss:step:10:200`.
 *
 * Always: a part is read only for the axis it was chosen on; what is not a range is no zoom.
 */
export interface Range {
  from: number;
  to: number;
}

const NAME = "zoom";
const DIGITS = 10;

/** The part of the chart of this title; null when all of it is shown. */
export function readZoom(query: URLSearchParams, title: string, x: string): Range | null {
  const start = `${title}:${x}:`;
  const value = query.getAll(NAME).find((each) => each.startsWith(start));
  const [from, to, ...more] = (value?.slice(start.length) ?? "").split(":").map((each) => (each ? Number(each) : NaN));
  if (from === undefined || to === undefined || more.length) return null;
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? { from, to } : null;
}

/** The query's change that shows this part of the chart, or all of it. */
export function zoomChange(query: URLSearchParams, title: string, x: string, range: Range | null): Record<string, string[]> {
  const others = query.getAll(NAME).filter((each) => !isOf(each, title));
  const own = range ? [`${title}:${x}:${written(range.from)}:${written(range.to)}`] : [];
  return { [NAME]: [...others, ...own] };
}

function isOf(value: string, title: string): boolean {
  return value.startsWith(`${title}:`) && value.slice(title.length + 1).split(":").length === 3;
}

function written(value: number): string {
  return String(Number(value.toPrecision(DIGITS)));
}
