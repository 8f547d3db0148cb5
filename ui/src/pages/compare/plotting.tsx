/** What both plots of jobs share: width, colours, marks that are links, what is said of one job. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { SERIES_COLORS } from "../../charts/Chart";
import { number } from "../../lib/format";
import { navigate } from "../../lib/router";
import type { Cell, Compared, Dimension, Scale } from "./scales";

export interface Axis {
  dimension: Dimension;
  scale: Scale;
}

/** One job in a plot. */
export interface Mark {
  job: Compared;
  /** In the values of dimensions. */
  index: number;
  label: string;
  href: string;
  color: string;
}

export const MANY_JOBS = 12;

/** A colour of its own for each of a few jobs; of many, by where they are on `scale`. */
export function colorFor(index: number, many: number, value: Cell | undefined, scale: Scale | undefined): string {
  if (many <= MANY_JOBS) return `var(--series-${(index % SERIES_COLORS) + 1})`;
  const at = scale?.place(value ?? null) ?? null;
  return at === null ? "var(--series-8)" : `color-mix(in oklab, var(--series-2) ${Math.round(at * 100)}%, var(--series-1))`;
}

export function useWidth(): [preact.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => setWidth(element.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

/** A link in a drawing: the router takes clicks on links of HTML only. Attributes of SVG are
 * told apart by case: `tabindex`, not `tabIndex`.
 */
export function MarkLink({ mark, many, say, onActive, children }: { mark: Mark; many: number; say: string; onActive: (name: string) => void; children: ComponentChildren }) {
  const open = (event: MouseEvent): void => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(mark.href);
  };
  return (
    <a
      class="mark" href={mark.href} aria-label={say} tabindex={many > MANY_JOBS ? -1 : 0} onClick={open}
      onPointerEnter={() => onActive(mark.job.name)} onPointerLeave={() => onActive("")}
      onFocus={() => onActive(mark.job.name)} onBlur={() => onActive("")}
    >
      {children}
    </a>
  );
}

export function sayCell(value: Cell | undefined): string {
  return value === null || value === undefined ? "–" : number(value);
}

/** `logistic lr=0.5: lr 0.5, loss 0.24` */
export function sayMark(mark: Mark, dimensions: readonly Dimension[]): string {
  return `${mark.label}: ${dimensions.map((each) => `${each.name} ${sayCell(each.values[mark.index])}`).join(", ")}`;
}

/** Of the job under the pointer or in focus; what to do while there is none. */
export function PlotFoot({ mark, dimensions, hint }: { mark: Mark | undefined; dimensions: readonly Dimension[]; hint: string }) {
  if (!mark) return <p class="plot-foot dim">{hint}</p>;
  return (
    <p class="plot-foot">
      <span class="legend-color" style={{ background: mark.color }} aria-hidden="true" /><b>{mark.label}</b>
      {dimensions.map((each) => <span key={each.id}><span class="dim">{each.name}</span> {sayCell(each.values[mark.index])}</span>)}
    </p>
  );
}
