/** Fields of forms, each with its label. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useShortcut } from "../lib/keys";
import { Icon } from "./Icon";

export function Field({ label, hint, children }: { label: ComponentChildren; hint?: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="field">
      <label class="field"><span class="field-label">{label}</span>{children}</label>
      {hint && <span class="field-hint">{hint}</span>}
    </div>
  );
}

export function TextField({ label, value, onInput, hint, mono, placeholder, type = "text", required, autoFocus }: {
  label: ComponentChildren; value: string; onInput: (text: string) => void; hint?: ComponentChildren; mono?: boolean; placeholder?: string; type?: "text" | "password"; required?: boolean; autoFocus?: boolean;
}) {
  return (
    <Field label={label} hint={hint}>
      <input class={mono ? "input mono" : "input"} {...({ type } as { type: "text" })} value={value} placeholder={placeholder} required={required} autoFocus={autoFocus} autoComplete="off" spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />
    </Field>
  );
}

export function Select({ label, value, options, onChange, hidden = true }: { label: string; value: string; options: readonly (readonly [string, string])[]; onChange: (value: string) => void; hidden?: boolean }) {
  const select = (
    <span class="select">
      <select aria-label={hidden ? label : undefined} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
      </select>
      <Icon name="down" size={14} />
    </span>
  );
  return hidden ? select : <Field label={label}>{select}</Field>;
}

/** A search; `/` goes there. */
export function SearchField({ label, value, onInput, onKeyDown }: { label: string; value: string; onInput: (text: string) => void; onKeyDown?: (event: KeyboardEvent) => void }) {
  const input = useRef<HTMLInputElement>(null);
  useShortcut("/", label, () => input.current?.focus());
  return (
    <span class="search">
      <Icon name="search" />
      <input ref={input} type="search" aria-label={label} placeholder={label} value={value} spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Escape") event.currentTarget.blur(); onKeyDown?.(event); }} />
      <kbd aria-hidden="true">/</kbd>
    </span>
  );
}
