/** A button that puts a text into the clipboard. */
import { useState } from "preact/hooks";
import { Button } from "./Button";

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard?.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return <Button kind="quiet" icon={done ? "check" : "copy"} label={done ? "Copied" : label} onClick={() => void copy()} />;
}
