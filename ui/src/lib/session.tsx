/** Who looks, at which workspace, and its stream of events: for all parts of the page. */
import { createContext } from "preact";
import { useContext, useEffect, useRef } from "preact/hooks";
import type { EventStream, Events } from "../api/events";
import type { WhoAmI } from "../api/model";

export interface Session {
  workspace: string;
  person: WhoAmI;
  events: EventStream;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("outside of a session");
  return session;
}

export function useWorkspace(): string {
  return useSession().workspace;
}

/** Call `listener` for each event of the type while the component is shown. */
export function useEvent<K extends keyof Events>(type: K, listener: (data: Events[K]) => void): void {
  const { events } = useSession();
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => events.on(type, (data) => latest.current(data)), [events, type]);
}

/** Have the metrics and logs of these jobs in the stream while the component is shown. */
export function useFollow(jobs: readonly string[]): void {
  const { events } = useSession();
  const key = jobs.join("\n");
  useEffect(() => {
    const ends = key ? key.split("\n").map((job) => events.follow(job)) : [];
    return () => ends.forEach((end) => end());
  }, [events, key]);
}

/** May the person change jobs and assets here? The server decides; this only hides buttons. */
export function mayWrite(person: WhoAmI): boolean {
  return person.role !== null && person.role !== "reader";
}
