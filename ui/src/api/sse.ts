/** Read server-sent events from a stream of text, in whatever pieces it comes.
 *
 * Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */
export interface ServerEvent {
  type: string;
  data: string;
  id: string;
}

/** Feed it text; it calls `emit` for each whole event. A comment (a heartbeat) is no event. */
export class EventParser {
  #rest = "";
  #type = "";
  #data: string[] = [];
  #id = "";

  constructor(private readonly emit: (event: ServerEvent) => void) {}

  feed(text: string): void {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#take(line);
  }

  #take(line: string): void {
    if (line === "") {
      if (this.#data.length) {
        this.emit({ type: this.#type || "message", data: this.#data.join("\n"), id: this.#id });
      }
      this.#type = "";
      this.#data = [];
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
  }
}
