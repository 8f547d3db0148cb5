/** A log of any length: only the lines on the screen are here.
 *
 * Always: at its end it follows what is added, until someone scrolls up.
 */
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { Button } from "../components/Button";
import { ErrorNote } from "../components/Empty";
import { Icon } from "../components/Icon";
import { count, plural } from "../lib/format";
import { useShortcut } from "../lib/keys";
import { pieces, withHits } from "./ansi";
import { LogLines, type LogSource } from "./lines";
import { contentPx, LINE_PX, scrollTo, windowAt } from "./window";

export interface Hits {
  lines: number[];
  more: boolean;
}

interface Props {
  label: string;
  source: LogSource;
  search: (text: string, signal: AbortSignal) => Promise<Hits>;
  /** Grows when the log has: read its end again. */
  version: number;
  isLive: boolean;
  download: string;
  /** Kept in the address. */
  text: string;
  onText: (text: string) => void;
}

export function LogView({ label, source, search, version, isLive, download, text, onText }: Props) {
  const [, redraw] = useReducer((value: number) => value + 1, 0);
  const lines = useMemo(() => new LogLines(source, () => redraw(0)), [source]);
  const frame = useRef<HTMLDivElement>(null);
  const [viewPx, setViewPx] = useState(600);
  const [scrollPx, setScrollPx] = useState(0);
  const [follows, setFollows] = useState(isLive);
  const hits = useHits(lines, search, text, version);

  useEffect(() => () => lines.close(), [lines]);
  useEffect(() => void lines.grow(), [lines, version]);
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setViewPx(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const shown = windowAt(lines.count, viewPx, scrollPx);
  useEffect(() => {
    if (lines.isKnown && shown.end > shown.first) lines.want(shown.first, shown.end);
  });
  useLayoutEffect(() => {
    if (follows && frame.current) frame.current.scrollTop = contentPx(lines.count);
  }, [follows, lines.count, viewPx]);

  const onScroll = (): void => {
    const element = frame.current;
    if (!element) return;
    setScrollPx(element.scrollTop);
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 4;
    if (!isAtEnd && element.scrollTop < scrollPx) setFollows(false);
    else if (isAtEnd && isLive) setFollows(true);
  };
  const goTo = (line: number): void => {
    setFollows(false);
    if (frame.current) frame.current.scrollTop = scrollTo(line, lines.count, viewPx);
  };
  const current = useHitChoice(hits, goTo);
  useShortcut("G", "Log: to the end", () => { if (frame.current) frame.current.scrollTop = contentPx(lines.count); });
  useShortcut("g g", "Log: to the start", () => goTo(0));

  const rows = [];
  for (let number = shown.first; number < shown.end; number += 1) {
    rows.push(<Line key={number} number={number} line={lines.line(number)} text={text} isCurrent={number === current.line} />);
  }
  const digits = String(Math.max(100, lines.count)).length;
  return (
    <div class="log">
      <div class="log-bar">
        <LogSearch label={`Search ${label}`} text={text} onText={onText} hits={hits} current={current} />
        <span class="dim log-count">{lines.isKnown ? plural(lines.count, "line") : ""}</span>
        <Button icon="follow" pressed={follows} onClick={() => setFollows(!follows)}>Follow</Button>
        <Button icon="download" href={download} download={label.replaceAll("/", "_")} label="Download the log" />
      </div>
      {lines.error instanceof Error && <ErrorNote error={{ message: lines.error.message, hint: (lines.error as { hint?: string }).hint ?? "" }} />}
      <div class="log-frame" ref={frame} onScroll={onScroll} tabIndex={0} role="log" aria-label={label} aria-live="off">
        <div class="log-content" style={{ height: `${contentPx(lines.count)}px` }}>
          <div class="log-lines" style={{ transform: `translateY(${shown.top}px)`, "--log-digits": `${digits}ch` }}>{rows}</div>
        </div>
        {lines.isKnown && !lines.count && <p class="log-empty">{isLive ? "Nothing printed yet." : "It printed nothing."}</p>}
      </div>
    </div>
  );
}

function Line({ number, line, text, isCurrent }: { number: number; line: string | undefined; text: string; isCurrent: boolean }) {
  return (
    <div class={`log-line${isCurrent ? " is-current" : ""}`} style={{ height: `${LINE_PX}px` }}>
      <span class="log-number" aria-hidden="true">{number + 1}</span>
      <span class="log-text">
        {line === undefined ? <span class="log-wait">·</span> : withHits(pieces(line), text).map((piece, at) =>
          piece.hit ? <mark key={at} class={piece.look}>{piece.text}</mark> : piece.look ? <span key={at} class={piece.look}>{piece.text}</span> : piece.text)}
      </span>
    </div>
  );
}

function useHits(lines: LogLines, search: Props["search"], text: string, version: number): Hits | null {
  const [hits, setHits] = useState<Hits | null>(null);
  useEffect(() => {
    if (!text) {
      setHits(null);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      search(text, abort.signal).then((found) => !abort.signal.aborted && setHits(found), () => {});
    }, 200);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [lines, search, text, text ? version : 0]);
  return hits;
}

interface HitChoice {
  at: number;
  line: number;
  step: (by: number) => void;
}

function useHitChoice(hits: Hits | null, goTo: (line: number) => void): HitChoice {
  const [at, setAt] = useState(-1);
  const step = (by: number): void => {
    const many = hits?.lines.length ?? 0;
    if (!many) return;
    const next = at < 0 ? (by > 0 ? 0 : many - 1) : (at + by + many) % many;
    setAt(next);
    goTo(hits?.lines[next] as number);
  };
  useEffect(() => {
    if (!hits) setAt(-1);
  }, [hits]);
  return { at, line: hits?.lines[at] ?? -1, step };
}

function LogSearch({ label, text, onText, hits, current }: { label: string; text: string; onText: (text: string) => void; hits: Hits | null; current: HitChoice }) {
  const input = useRef<HTMLInputElement>(null);
  useShortcut("/", label, () => input.current?.focus());
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Enter") {
      event.preventDefault();
      current.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") input.current?.blur();
  };
  const many = hits?.lines.length ?? 0;
  return (
    <div class="log-search">
      <span class="search">
        <Icon name="search" />
        <input ref={input} type="search" aria-label={label} placeholder="Search the log" value={text} spellcheck={false} onInput={(event) => onText(event.currentTarget.value)} onKeyDown={onKey} />
        <kbd aria-hidden="true">/</kbd>
      </span>
      {hits && (
        <span class="log-hits" role="status">
          {many ? `${current.at < 0 ? "" : `${current.at + 1} of `}${count(many)}${hits.more ? "+" : ""}` : "nothing found"}
          <Button kind="quiet" label="Previous hit" disabled={!many} onClick={() => current.step(-1)}>↑</Button>
          <Button kind="quiet" label="Next hit" disabled={!many} onClick={() => current.step(1)}>↓</Button>
        </span>
      )}
    </div>
  );
}
