/** A table that sorts by its heads, selects by boxes, and groups its rows.
 *
 * Owns: looks, keys and selection. Leaves: sorting to who calls, most often the server.
 * Always: the first cell of a row is its name and a link; rows are made as one scrolls to them; on a
 * phone the table scrolls in its own frame, the page doesn't.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useSeen } from "../lib/seen";
import { Icon } from "./Icon";

const ROWS_AT_ONCE = 100;
/** How far from the window rows are made. */
const NEAR_PX = 1000;

export interface Column<Row> {
  id: string;
  head: ComponentChildren;
  /** What the head says to a screen reader, when `head` is no text. */
  label?: string;
  cell: (row: Row) => ComponentChildren;
  /** Right-aligned figures of one width. */
  numeric?: boolean;
  sortable?: boolean;
  /** `grow` takes the room that is left, `shrink` only what it needs. */
  width?: "grow" | "shrink";
  title?: string;
}

export interface Sort {
  by: string;
  descending: boolean;
}

interface Props<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  sort?: Sort | null;
  /** Null: the order without any column. */
  onSort?: (sort: Sort | null) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (selected: Set<string>) => void;
  /** Rows of one text that follow each other get a head of their own. */
  groupOf?: (row: Row) => string;
  groupHead?: (group: string, rows: readonly Row[]) => ComponentChildren;
  rowClass?: (row: Row) => string;
}

export function Table<Row>(props: Props<Row>) {
  const { label, columns, rows, selected, onSelect, keyOf } = props;
  const [most, setMost] = useState(ROWS_AT_ONCE);
  let left = most;
  const all = selected !== undefined && rows.length > 0 && rows.every((row) => selected.has(keyOf(row)));
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label={label}>
      <table class="table" aria-label={label}>
        <thead>
          <tr>
            {onSelect && (
              <th class="cell-box" scope="col">
                <input type="checkbox" aria-label="Select all" checked={all} onChange={() => onSelect(all ? new Set() : new Set(rows.map(keyOf)))} />
              </th>
            )}
            {columns.map((column) => <Head key={column.id} column={column} sort={props.sort ?? null} onSort={props.onSort} />)}
          </tr>
        </thead>
        {sections(props).map(([group, members]) => {
          const made = members.slice(0, Math.max(0, left));
          left -= members.length;
          return made.length > 0 && (
            <tbody key={group}>
              {props.groupHead && group !== null && (
                <tr class="table-group"><th colSpan={columns.length + (onSelect ? 1 : 0)} scope="colgroup">{props.groupHead(group, members)}</th></tr>
              )}
              {made.map((row) => <Line key={keyOf(row)} row={row} {...props} />)}
            </tbody>
          );
        })}
      </table>
      {rows.length > most && <End key={most} onSeen={() => setMost(most + ROWS_AT_ONCE)} />}
    </div>
  );
}

/** Where the rows end that are made; it stays in sight when the table is scrolled sideways. */
function End({ onSeen }: { onSeen: () => void }) {
  const [box, isSeen] = useSeen<HTMLDivElement>(NEAR_PX);
  useEffect(() => { if (isSeen) onSeen(); }, [isSeen]);
  return <div class="table-end" ref={box} />;
}

function sections<Row>({ rows, groupOf }: Props<Row>): [string | null, Row[]][] {
  if (!groupOf) return [[null, [...rows]]];
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const group = groupOf(row);
    const members = groups.get(group);
    if (members) members.push(row);
    else groups.set(group, [row]);
  }
  return [...groups];
}

function Head<Row>({ column, sort, onSort }: { column: Column<Row>; sort: Sort | null; onSort: ((sort: Sort | null) => void) | undefined }) {
  const names = [column.numeric && "cell-number", column.width && `cell-${column.width}`].filter(Boolean).join(" ");
  const isSorted = sort?.by === column.id;
  const direction = isSorted ? (sort.descending ? "descending" : "ascending") : undefined;
  if (!column.sortable || !onSort) return <th scope="col" class={names} title={column.title} aria-label={column.label}>{column.head}</th>;
  const next = (): Sort | null => {
    if (!isSorted) return { by: column.id, descending: false };
    return sort.descending ? null : { by: column.id, descending: true };
  };
  return (
    <th scope="col" class={names} aria-sort={direction} title={column.title}>
      <button type="button" class="sorter" aria-label={column.label} onClick={() => onSort(next())}>
        {column.head}<span class={`sorter-sign${isSorted ? " is-on" : ""}`} aria-hidden="true">{isSorted && sort.descending ? "↓" : "↑"}</span>
      </button>
    </th>
  );
}

function Line<Row>({ row, columns, keyOf, selected, onSelect, rowClass }: Props<Row> & { row: Row }) {
  const key = keyOf(row);
  const isOn = selected?.has(key) ?? false;
  const toggle = (): void => {
    const changed = new Set(selected);
    if (isOn) changed.delete(key);
    else changed.add(key);
    onSelect?.(changed);
  };
  return (
    <tr class={`${rowClass?.(row) ?? ""}${isOn ? " is-selected" : ""}`}>
      {onSelect && (
        <td class="cell-box"><input type="checkbox" aria-label={`Select ${key}`} checked={isOn} onChange={toggle} /></td>
      )}
      {columns.map((column) => (
        <td key={column.id} class={[column.numeric && "cell-number", column.width && `cell-${column.width}`].filter(Boolean).join(" ")}>{column.cell(row)}</td>
      ))}
    </tr>
  );
}

/** What can be done with the selected rows, at the foot of the page. */
export function Selection({ many, children, onClear }: { many: number; children: ComponentChildren; onClear: () => void }) {
  if (!many) return null;
  return (
    <div class="selection" role="toolbar" aria-label="Selected">
      <span class="selection-count">{many} selected</span>
      {children}
      <button type="button" class="button button-quiet button-icon" aria-label="Clear the selection" onClick={onClear}><Icon name="close" /></button>
    </div>
  );
}
