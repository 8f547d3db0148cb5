import { expect, it } from "vitest";
import { EventParser, type ServerEvent } from "../src/api/sse";

function parsed(...texts: string[]): ServerEvent[] {
  const events: ServerEvent[] = [];
  const parser = new EventParser((event) => events.push(event));
  for (const text of texts) parser.feed(text);
  return events;
}

it("an event is read in whatever pieces it comes", () => {
  const whole = 'id: 7\nevent: job\ndata: {"a":\ndata: 1}\n\n: ping\n\nevent: logs\ndata: x\n\n';
  const expected = [
    { id: "7", type: "job", data: '{"a":\n1}' },
    { id: "7", type: "logs", data: "x" },
  ];
  expect(parsed(whole)).toEqual(expected);
  expect(parsed(...whole)).toEqual(expected);
  expect(parsed(...whole.replaceAll("\n", "\r\n"))).toEqual(expected);
});

it("an event that is not whole is no event yet", () => {
  expect(parsed("data: 1\n")).toEqual([]);
});
