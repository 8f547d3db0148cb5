/** Buttons, and links that look like them. Icons alone need a `label`. */
import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";

interface Props {
  children?: ComponentChildren;
  icon?: IconName;
  kind?: "plain" | "primary" | "danger" | "quiet";
  label?: string;
  title?: string;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  href?: string;
  download?: string;
  submit?: boolean;
  onClick?: (event: MouseEvent) => void;
}

export function Button(props: Props) {
  const { children, icon, kind = "plain", label, title, disabled, pressed, expanded, href, download, submit, onClick } = props;
  const names = `button button-${kind}${children ? "" : " button-icon"}`;
  const inner = (<>{icon && <Icon name={icon} />}{children}</>);
  if (href !== undefined) {
    return <a class={names} href={href} download={download} aria-label={label} title={title ?? label}>{inner}</a>;
  }
  return (
    <button type={submit ? "submit" : "button"} class={names} aria-label={label} title={title ?? label} disabled={disabled} aria-pressed={pressed} aria-expanded={expanded} onClick={onClick}>
      {inner}
    </button>
  );
}

/** A few choices beside each other, one of them chosen. */
export function Choice<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: readonly (readonly [T, ComponentChildren, string?])[]; onChange: (value: T) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([key, text, name]) => (
        <button type="button" key={key} aria-pressed={key === value} aria-label={name} title={name} onClick={() => onChange(key)}>{text}</button>
      ))}
    </div>
  );
}
