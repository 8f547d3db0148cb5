/** The frame of all pages: who is signed in, where the address leads, what is shown around it. */
import { Component, type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, get, whenSignedOut } from "../api/client";
import { EventStream } from "../api/events";
import type { WhoAmI } from "../api/model";
import { sessionId } from "../api/stream";
import { Empty, ErrorNote, Loading } from "../components/Empty";
import { Toasts } from "../components/Toast";
import { href, placeOf } from "../lib/address";
import { navigate, useAddress } from "../lib/router";
import { SessionContext } from "../lib/session";
import { Frame } from "./Frame";
import { pageFor } from "./pages";
import { SIGN_IN_PATH, SignIn } from "./SignIn";

/** Tabs tell each other whose session the browser has now. */
const sessions = new BroadcastChannel("torchyard-session");

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

  const [asks, setAsks] = useState(0);
  const askAgain = (): void => setAsks((count) => count + 1);
  const known = useRef({ user: "", session: "" });

  useEffect(() => {
    whenSignedOut(() => {
      known.current.session = "";
      setPerson(null);
      setSignedOut(true);
    });
    sessions.onmessage = ({ data }) => {
      if (data === known.current.session || location.pathname === SIGN_IN_PATH) return;
      setSignedOut(false);
      askAgain();
    };
  }, []);
  useEffect(() => {
    if (isSignedOut) return;
    let timer = 0;
    const meet = (answer: WhoAmI): void => {
      const { user, session } = known.current;
      // What was read as somebody else is not shown to this one.
      if (user && user !== answer.user) return location.reload();
      known.current = { user: answer.user, session: sessionId(answer) };
      setPerson(answer);
      if (session !== known.current.session) sessions.postMessage(known.current.session);
    };
    const ask = (): void => {
      get<WhoAmI>(`/v1/whoami${asked ? `?workspace=${encodeURIComponent(asked)}` : ""}`).then(meet, (error: ApiError) => {
        if (error.status === 401) return;
        setProblem(error);
        timer = window.setTimeout(ask, 3000);
      });
    };
    ask();
    return () => clearTimeout(timer);
  }, [isSignedOut, asked, asks]);
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
      <InWorkspace key={workspace} workspace={workspace} person={person} onSession={askAgain}>
        {place && <Page section={place.section} names={place.names} />}
      </InWorkspace>
      <Toasts />
    </>
  );
}

function InWorkspace({ workspace, person, onSession, children }: { workspace: string; person: WhoAmI; onSession: () => void; children: ComponentChildren }) {
  const session = sessionId(person);
  const events = useMemo(() => new EventStream(workspace, session), [workspace, session]);
  useEffect(() => {
    events.on("session", onSession);
    return () => events.close();
  }, [events]);
  const shared = useMemo(() => ({ workspace, person, events }), [workspace, person, events]);
  return (
    <SessionContext.Provider value={shared}>
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
