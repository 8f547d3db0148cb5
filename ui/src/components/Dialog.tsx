/** A question or a form over the page. The browser's own `<dialog>` keeps the focus inside. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "./Button";

export function Dialog({ title, children, onClose, wide }: { title: string; children: ComponentChildren; onClose: () => void; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog dialog-wide" : "dialog"}
      aria-label={title}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onMouseDown={(event) => { if (event.target === dialog.current) onClose(); }}
    >
      <div class="dialog-inner">
        <header class="dialog-head"><h2>{title}</h2><Button kind="quiet" icon="close" label="Close" onClick={onClose} /></header>
        {children}
      </div>
    </dialog>
  );
}

/** Ask before something that can't be undone. */
export function Confirm({ title, children, action, onConfirm, onClose }: { title: string; children: ComponentChildren; action: string; onConfirm: () => void; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="dialog-body">{children}</div>
      <footer class="dialog-foot">
        <Button onClick={onClose}>Keep</Button>
        <Button kind="danger" onClick={() => { onClose(); onConfirm(); }}>{action}</Button>
      </footer>
    </Dialog>
  );
}
