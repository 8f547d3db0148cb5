/** Which lines of a long log are on the screen.
 *
 * A browser can't make an element as high as millions of lines; above `MOST_PX` the scroll bar
 * stands for proportionally more lines than it has pixels.
 */
export const LINE_PX = 20;
/** Firefox ends at 17.9 million. */
export const MOST_PX = 15_000_000;

export interface Window {
  /** First and last line to draw, the last not included. */
  first: number;
  end: number;
  /** Where the first one stands in the scrolled element, in px. */
  top: number;
}

/** The height of the scrolled element. */
export function contentPx(lines: number): number {
  return Math.min(lines * LINE_PX, MOST_PX);
}

/** px of lines above the screen, for px that are scrolled. */
function linesAbovePx(lines: number, viewPx: number, scrollPx: number): number {
  const all = lines * LINE_PX;
  const content = contentPx(lines);
  if (all <= content) return scrollPx;
  const share = Math.min(1, Math.max(0, scrollPx / Math.max(1, content - viewPx)));
  return share * (all - viewPx);
}

export function windowAt(lines: number, viewPx: number, scrollPx: number, overscan = 20): Window {
  const above = linesAbovePx(lines, viewPx, scrollPx);
  const shown = Math.floor(above / LINE_PX);
  const first = Math.max(0, shown - overscan);
  const end = Math.min(lines, shown + Math.ceil(viewPx / LINE_PX) + 1 + overscan);
  return { first: Math.min(first, end), end, top: scrollPx - (above - first * LINE_PX) };
}

/** How far to scroll for a line to stand in the middle of the screen. */
export function scrollTo(line: number, lines: number, viewPx: number): number {
  const all = lines * LINE_PX;
  const content = contentPx(lines);
  const above = Math.max(0, Math.min(all - viewPx, line * LINE_PX - viewPx / 2 + LINE_PX / 2));
  if (all <= content) return above;
  return (above / (all - viewPx)) * (content - viewPx);
}
