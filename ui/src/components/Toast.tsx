/** Short messages about what was just done, at the foot of the page. */
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { Icon } from "./Icon";

interface Message {
  id: number;
  tone: "green" | "red";
  text: string;
  hint: string;
}

let messages: Message[] = [];
let count = 0;
let redraw: () => void = () => {};

function put(tone: Message["tone"], text: string, hint: string): void {
  const id = (count += 1);
  messages = [...messages.slice(-3), { id, tone, text, hint }];
  redraw();
  setTimeout(() => remove(id), tone === "red" ? 10_000 : 4_000);
}

function remove(id: number): void {
  messages = messages.filter((message) => message.id !== id);
  redraw();
}

export function say(text: string): void {
  put("green", text, "");
}

export function complain(error: unknown): void {
  const hint = error instanceof ApiError ? error.hint : "";
  put("red", error instanceof Error ? error.message : String(error), hint);
}

/** Do something that may be refused, and say so. */
export async function attempt<T>(work: Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await work;
    if (done) say(done);
    return result;
  } catch (error) {
    complain(error);
    return undefined;
  }
}

export function Toasts() {
  const [, set] = useState(0);
  useEffect(() => {
    redraw = () => set((value) => value + 1);
    return () => void (redraw = () => {});
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {messages.map((message) => (
        <div key={message.id} class={`toast toast-${message.tone}`}>
          <Icon name={message.tone === "red" ? "warn" : "check"} />
          <div><p>{message.text}</p>{message.hint && <p class="note-hint">{message.hint}</p>}</div>
          <button type="button" class="toast-close" aria-label="Dismiss" onClick={() => remove(message.id)}><Icon name="close" size={14} /></button>
        </div>
      ))}
    </div>
  );
}
