/** A button that opens a small window under it; a click elsewhere or Escape closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "./Button";
import type { IconName } from "./Icon";

export function Menu({ text, icon, label, kind, children, align = "right" }: {
  text?: ComponentChildren; icon?: IconName; label: string; kind?: "plain" | "quiet"; align?: "left" | "right";
  children: (close: () => void) => ComponentChildren;
}) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const close = (): void => setOpen(false);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape);
    };
  }, [open]);
  return (
    <div class="menu" ref={root}>
      <Button icon={icon} kind={kind ?? "plain"} label={text ? undefined : label} title={label} expanded={open} onClick={() => setOpen(!open)}>{text}</Button>
      {open && <div class={`menu-window menu-${align}`} role="dialog" aria-label={label}>{children(close)}</div>}
    </div>
  );
}
