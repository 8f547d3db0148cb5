/** Parts of a page, one shown; which one is in the address. Arrow keys move between them. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export interface Tab {
  id: string;
  label: string;
  note?: ComponentChildren;
}

export function Tabs({ tabs, chosen, onChoose, label }: { tabs: readonly Tab[]; chosen: string; onChoose: (id: string) => void; label: string }) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a phone the tabs scroll; of the page itself nothing moves.
    const tab = list.current?.querySelector<HTMLElement>('[aria-selected="true"]');
    if (!list.current || !tab) return;
    const { offsetLeft, offsetWidth } = tab;
    const { clientWidth, scrollLeft } = list.current;
    const start = offsetLeft - list.current.offsetLeft;
    if (start < scrollLeft || start + offsetWidth > scrollLeft + clientWidth) list.current.scrollLeft = start - (clientWidth - offsetWidth) / 2;
  }, [chosen]);
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.id);
    requestAnimationFrame(() => list.current?.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
      {tabs.map((tab) => (
        <button type="button" role="tab" key={tab.id} id={`tab-${tab.id}`} aria-selected={tab.id === chosen} aria-controls="tab-panel" tabIndex={tab.id === chosen ? 0 : -1} onClick={() => onChoose(tab.id)}>
          {tab.label}{tab.note !== undefined && tab.note !== null && <span class="tab-note">{tab.note}</span>}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${id}`} class="tab-panel">{children}</div>;
}
