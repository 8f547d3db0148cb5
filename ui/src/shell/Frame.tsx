/** Navigation beside the page; above it on a phone. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, send } from "../api/client";
import type { Page, Workspace } from "../api/model";
import { Button, Choice } from "../components/Button";
import { Dialog } from "../components/Dialog";
import { Select } from "../components/Field";
import { Icon } from "../components/Icon";
import { href, placeOf } from "../lib/address";
import { activeShortcuts, useShortcut } from "../lib/keys";
import { useLoad } from "../lib/query";
import { navigate, useAddress } from "../lib/router";
import { useSession } from "../lib/session";
import { setTheme, theme, type Theme } from "../lib/theme";
import { SECTIONS } from "./pages";

export function Frame({ children }: { children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const { path } = useAddress();
  useEffect(() => setOpen(false), [path]);
  return (
    <div class={isOpen ? "frame is-open" : "frame"}>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <div class="topbar">
        <Button kind="quiet" icon={isOpen ? "close" : "menu"} label="Navigation" expanded={isOpen} onClick={() => setOpen(!isOpen)} />
        <Wordmark />
        <Live onlyLost />
      </div>
      <Sidebar />
      <main id="content" tabIndex={-1}>{children}</main>
      <Help />
    </div>
  );
}

function Wordmark() {
  return (
    <a class="wordmark" href="/ui/">
      <svg width="20" height="20" viewBox="0 0 20 20" fill="none" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
        <path class="wordmark-brand" d="M4 15V5h12" /><path stroke="currentColor" d="M10 5v10M16 5v10" />
      </svg>
      torchyard
    </a>
  );
}

function Sidebar() {
  const { workspace } = useSession();
  const { path } = useAddress();
  const current = placeOf(path)?.section;
  return (
    <aside class="sidebar">
      <Wordmark />
      <WorkspaceChoice />
      <nav aria-label="Sections">
        <ul>
          {SECTIONS.map((section) => (
            <li key={section.id}>
              <a href={href(workspace, section.id)} aria-current={section.id === current ? "page" : undefined}>
                <Icon name={section.icon} />{section.label}
              </a>
              <GoTo section={section.id} letter={section.key} label={section.label} />
            </li>
          ))}
        </ul>
      </nav>
      <div class="sidebar-foot">
        <Live />
        <ThemeChoice />
        <Person />
      </div>
    </aside>
  );
}

function GoTo({ section, letter, label }: { section: string; letter: string; label: string }) {
  const { workspace } = useSession();
  useShortcut(`g ${letter}`, `Go to ${label}`, () => navigate(href(workspace, section)));
  return null;
}

function WorkspaceChoice() {
  const { workspace } = useSession();
  const { data } = useLoad("workspaces", (signal) => get<Page<Workspace>>("/v1/workspaces", signal));
  const names = data?.value.map((each) => each.name) ?? [];
  if (!names.includes(workspace)) names.unshift(workspace);
  return (
    <Select label="Workspace" value={workspace} options={names.map((name) => [name, name])} onChange={(name) => navigate(href(name, "jobs"))} />
  );
}

const STATES = {
  connecting: ["grey", "Connecting"],
  live: ["green", "Live"],
  polling: ["grey", "Updates every 5 s"],
  offline: ["red", "Not connected"],
} as const;

/** On a phone, where the navigation is shut, it is shown only where it says that something is lost. */
function Live({ onlyLost = false }: { onlyLost?: boolean }) {
  const { events } = useSession();
  const [state, setState] = useState(events.state);
  useEffect(() => {
    // It may have changed since the first drawing.
    setState(events.state);
    return events.onState(setState);
  }, [events]);
  if (onlyLost && state !== "offline") return null;
  const [tone, word] = STATES[state];
  return <p class={`live live-${tone}`} role="status"><span class="live-dot" aria-hidden="true" />{word}</p>;
}

function ThemeChoice() {
  const [chosen, setChosen] = useState<Theme>(theme);
  const choose = (value: Theme): void => {
    setTheme(value);
    setChosen(value);
  };
  return (
    <Choice label="Theme" value={chosen} onChange={choose} options={[
      ["system", <Icon name="screen" size={14} />, "As the system"],
      ["light", <Icon name="sun" size={14} />, "Light"],
      ["dark", <Icon name="moon" size={14} />, "Dark"],
    ]} />
  );
}

function Person() {
  const { person } = useSession();
  const signOut = async (): Promise<void> => {
    try {
      await send("DELETE", "/v1/sign-in/session");
    } finally {
      location.assign("/ui/");
    }
  };
  return (
    <div class="person">
      <span class="person-letter" aria-hidden="true">{person.user.slice(0, 1).toUpperCase()}</span>
      <span class="person-name"><span>{person.user}</span><span class="dim">{person.role}</span></span>
      <Button kind="quiet" icon="out" label="Sign out" onClick={() => void signOut()} />
    </div>
  );
}

function Help() {
  const [isOpen, setOpen] = useState(false);
  useShortcut("?", "Show the shortcuts", () => setOpen(true));
  if (!isOpen) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => setOpen(false)}>
      <dl class="shortcuts">
        {activeShortcuts().map(({ keys, label }) => (
          <div key={keys}><dt>{label}</dt><dd>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dd></div>
        ))}
      </dl>
    </Dialog>
  );
}
