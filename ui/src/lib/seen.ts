/** What is costly is made only once it comes near what can be seen. */
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Where to put the element, and whether it has been within `margin_px` of the window. */
export function useSeen<E extends Element>(margin_px: number): [RefObject<E | null>, boolean] {
  const box = useRef<E>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    if (!box.current) return;
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      setSeen(true);
    }, { rootMargin: `${margin_px}px` });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, isSeen];
}
