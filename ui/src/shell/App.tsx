/** The frame of all pages: who is signed in, where the address leads, what is shown around it. */
import { Component, type ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, get, whenSignedOut } from "../api/client";
import { EventStream } from "../api/events";
import type { WhoAmI } from "../api/model";
import { Empty, ErrorNote, Loading } from "../components/Empty";
import { Toasts } from "../components/Toast";
import { href, placeOf } from "../lib/address";
import { navigate, useAddress } from "../lib/router";
import { SessionContext } from "../lib/session";
import { Frame } from "./Frame";
import { pageFor } from "./pages";
import { SIGN_IN_PATH, SignIn } from "./SignIn";

export function App() {
  const { path } = useAddress();
  const [person, setPerson] = useState<WhoAmI | null>(null);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [isSignedOut, setSignedOut] = useState(path === SIGN_IN_PATH);
  const place = placeOf(path);
  const asked = place?.workspace ?? "";
  // The page's module comes while the server is asked who this is.
  useEffect(() => {
    if (place) void pageFor(place.section, place.names)?.().catch(() => {});
  }, []);
  const workspace = place?.workspace ?? person?.workspace ?? "";

  useEffect(() => {
    whenSignedOut(() => setSignedOut(true));
  }, []);
  useEffect(() => {
    if (isSignedOut) return;
    let timer = 0;
    const ask = (): void => {
      get<WhoAmI>(`/v1/whoami${asked ? `?workspace=${encodeURIComponent(asked)}` : ""}`).then(setPerson, (error: ApiError) => {
        if (error.status === 401) return;
        setProblem(error);
        timer = window.setTimeout(ask, 3000);
      });
    };
    ask();
    return () => clearTimeout(timer);
  }, [isSignedOut, asked]);
  useEffect(() => {
    if (!place && person && !isSignedOut) navigate(href(person.workspace, "jobs"), true);
  }, [place, person]);

  const enter = (next: string): void => {
    navigate(next, true);
    setSignedOut(false);
  };
  if (isSignedOut) return <SignIn onSignedIn={enter} />;
  if (!person || !workspace) return problem ? <div class="alone"><ErrorNote error={problem} /></div> : <Loading />;
  return (
    <>
      <InWorkspace key={workspace} workspace={workspace} person={person}>
        {place && <Page section={place.section} names={place.names} />}
      </InWorkspace>
      <Toasts />
    </>
  );
}

function InWorkspace({ workspace, person, children }: { workspace: string; person: WhoAmI; children: ComponentChildren }) {
  const events = useMemo(() => new EventStream(workspace), [workspace]);
  useEffect(() => () => events.close(), [events]);
  const session = useMemo(() => ({ workspace, person, events }), [workspace, person, events]);
  return (
    <SessionContext.Provider value={session}>
      <Frame>{children}</Frame>
    </SessionContext.Provider>
  );
}

/** A page's module is loaded with its first visit. */
function Page({ section, names }: { section: string; names: string[] }) {
  const load = pageFor(section, names);
  const [shown, setShown] = useState<{ load: typeof load; Module: preact.ComponentType<{ names: string[] }> } | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    setFailed(false);
    load?.().then(
      (module) => isCurrent && setShown({ load, Module: module.default }),
      () => isCurrent && setFailed(true),
    );
    return () => void (isCurrent = false);
  }, [load]);
  if (!load) return <Empty title="There is no such page">Choose one from the navigation.</Empty>;
  if (failed) return <Empty title="This page could not be loaded">The server was updated or can't be reached: reload.</Empty>;
  if (shown?.load !== load) return <Loading />;
  const { Module } = shown;
  return <Guard key={`${section}/${names.join("/")}`}><Module names={names} /></Guard>;
}

/** A mistake in one page leaves the navigation usable. */
class Guard extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  override componentDidCatch(error: Error): void {
    console.error(error);
    this.setState({ error });
  }

  override render() {
    const { error } = this.state;
    if (error) return <ErrorNote error={{ message: `This page failed: ${error.message}`, hint: "reload; if it stays, report it with this address" }} />;
    return this.props.children;
  }
}
