/** The time that goes on. */
import { useEffect, useState } from "preact/hooks";

/** The time, for what says how long ago something was; it moves on while shown. */
export function useNow(every_ms: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!every_ms) return;
    const timer = setInterval(() => setNow(Date.now()), every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return now;
}
