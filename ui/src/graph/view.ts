/** What part of a drawing is shown, and how large.
 *
 * Owns: numbers only. Leaves: wheel, pointers and keys to Graph.tsx.
 * Always: some of the drawing stays in sight, and its letters never grow beyond twice their size.
 */
export interface View { x: number; y: number; scale: number }
export interface Area { width: number; height: number }

const [LEAST, MOST] = [0.02, 2];
/** All of a drawing is shown first where it need not be smaller than `SMALL`; else as much of it as
 * there is room for at `READABLE`.
 */
export const SMALL = 0.6;
const READABLE = 0.8;
const IN_SIGHT = 60;
/** Less than the margin of a drawing. */
const SIGHT_GAP = 8;

/** All of it, in the middle, and no larger than it is drawn. */
export function fitted(drawing: Area, frame: Area, least = LEAST): View {
  const wanted = Math.min(1, frame.width / (drawing.width || 1), frame.height / (drawing.height || 1));
  const scale = Math.max(least, wanted);
  const start = (size: number, room: number): number => (size * scale <= room ? (room - size * scale) / 2 : 0);
  return { x: start(drawing.width, frame.width), y: start(drawing.height, frame.height), scale };
}

/** How large a drawing is at first. */
export function firstScale(drawing: Area, frame: Area): number {
  const { scale } = fitted(drawing, frame);
  return scale >= SMALL ? scale : READABLE;
}

/** What is shown first: all of it, or as much around `box` as can be read. */
export function begun(drawing: Area, frame: Area, box: Area & { x: number; y: number }): View {
  const view = fitted(drawing, frame, firstScale(drawing, frame));
  const around = (start: number, size: number, whole: number, room: number, fits: number): number => {
    if (whole * view.scale <= room) return fits;
    return Math.min(0, Math.max(room - whole * view.scale, room / 2 - (start + size / 2) * view.scale));
  };
  return {
    ...view,
    x: around(box.x, box.width, drawing.width, frame.width, view.x),
    y: around(box.y, box.height, drawing.height, frame.height, view.y),
  };
}

/** Larger or smaller around a point of the frame; no smaller than `least`, or than it is. */
export function zoomed(view: View, factor: number, at: { x: number; y: number }, least = LEAST): View {
  const scale = Math.min(MOST, Math.max(Math.min(least, view.scale), view.scale * factor));
  const ratio = scale / view.scale;
  return { x: at.x - (at.x - view.x) * ratio, y: at.y - (at.y - view.y) * ratio, scale };
}

export function moved(view: View, dx: number, dy: number, drawing: Area, frame: Area): View {
  const kept = (value: number, size: number, room: number): number => Math.min(room - IN_SIGHT, Math.max(IN_SIGHT - size * view.scale, value));
  return { ...view, x: kept(view.x + dx, drawing.width, frame.width), y: kept(view.y + dy, drawing.height, frame.height) };
}

/** Moved as little as it takes to show a box with some room around it. */
export function showing(view: View, box: Area & { x: number; y: number }, frame: Area): View {
  const shift = (start: number, size: number, room: number): number => {
    const gap = Math.min(SIGHT_GAP, Math.max(0, (room - size) / 2));
    if (start < gap) return gap - start;
    return start + size > room - gap ? room - gap - start - size : 0;
  };
  return {
    ...view,
    x: view.x + shift(view.x + box.x * view.scale, box.width * view.scale, frame.width),
    y: view.y + shift(view.y + box.y * view.scale, box.height * view.scale, frame.height),
  };
}
