/** A part of a page with a heading. */
import type { ComponentChildren } from "preact";

export function Panel({ title, aside, children, flush }: { title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
  return (
    <section class="panel">
      {(title || aside) && (
        <header class="panel-head">
          <h2>{title}</h2>
          {aside && <div class="panel-aside">{aside}</div>}
        </header>
      )}
      <div class={flush ? "panel-flush" : "panel-body"}>{children}</div>
    </section>
  );
}

/** Names and values under each other; rows without a value are left out. */
export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  const shown = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

/** The head of a page: where one is, what can be done. */
export function PageHead({ title, above, beside, actions }: { title: ComponentChildren; above?: ComponentChildren; beside?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <header class="page-head">
      <div class="page-title">
        {above && <div class="page-above">{above}</div>}
        <div class="page-name"><h1>{title}</h1>{beside}</div>
      </div>
      {actions && <div class="page-actions">{actions}</div>}
    </header>
  );
}
