/** Nothing here yet: what would be here, and the first command to type. */
import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/client";
import { Copy } from "./Copy";
import { Icon } from "./Icon";

export function Empty({ title, children, command }: { title: string; children?: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p class="empty-text">{children}</p>}
      {command && (
        <div class={isShell(command) ? "command command-shell" : "command"}><code tabIndex={0}>{command}</code><Copy text={command} label="Copy the command" /></div>
      )}
    </div>
  );
}

/** Others are lines of a script or of a file. */
function isShell(command: string): boolean {
  return /^(yard|pip) /.test(command);
}

/** What went wrong, and the next step. */
export function ErrorNote({ error }: { error: Pick<ApiError, "message" | "hint"> }) {
  return (
    <div class="note note-red" role="alert">
      <Icon name="warn" />
      <div><p>{error.message}</p>{error.hint && <p class="note-hint">{error.hint}</p>}</div>
    </div>
  );
}

export function Loading({ label = "Loading" }: { label?: string }) {
  return <div class="loading" role="status"><span class="visually-hidden">{label}</span></div>;
}
