/** Which metrics, inputs and parameters are columns. */
import { useState } from "preact/hooks";
import type { JobRow } from "../../api/model";
import { Menu } from "../../components/Menu";
import { setQuery } from "../../lib/router";
import { columnsOf, splitColumn } from "./listState";

const GROUPS = [["metrics", "Metrics, last values"], ["inputs", "Inputs"], ["params", "Parameters"]] as const;
const MOST_SHOWN = 200;

export function ColumnChoice({ rows, chosen }: { rows: readonly JobRow[]; chosen: readonly string[] }) {
  const [text, setText] = useState("");
  // What was seen once stays: rows read for chosen columns hold no others.
  const [seen] = useState(() => new Set<string>());
  for (const name of [...columnsOf(rows), ...chosen]) seen.add(name);
  const fitting = [...seen].filter((name) => name.toLowerCase().includes(text.toLowerCase()));
  const toggle = (name: string): void => {
    const columns = chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name];
    setQuery({ column: columns.length ? columns : ["none"] });
  };
  return (
    <Menu icon="columns" text="Columns" label="Choose columns" align="left">
      {() => (
        <>
          <input class="input" type="search" aria-label="Search columns" placeholder="Search columns" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          {GROUPS.map(([group, title]) => {
            const names = fitting.filter((name) => name.startsWith(`${group}.`)).sort().slice(0, MOST_SHOWN);
            if (!names.length) return null;
            return (
              <div key={group}>
                <p class="menu-head">{title}</p>
                {names.map((name) => (
                  <label key={name} class="menu-item"><input type="checkbox" checked={chosen.includes(name)} onChange={() => toggle(name)} />{splitColumn(name)[1]}</label>
                ))}
              </div>
            );
          })}
          {!fitting.length && <p class="menu-head">These jobs have logged nothing yet.</p>}
        </>
      )}
    </Menu>
  );
}
