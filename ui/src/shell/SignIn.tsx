/** Signing in: by the link of `yard ui`, by a token, or at the provider where there is one. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, get, send } from "../api/client";
import { Button } from "../components/Button";
import { Copy } from "../components/Copy";
import { ErrorNote, Loading } from "../components/Empty";
import { TextField } from "../components/Field";
import { BASE } from "../lib/address";
import { address } from "../lib/router";

const SESSION = "/v1/sign-in/session";

export const SIGN_IN_PATH = `${BASE}sign-in`;

/** Where to go afterwards: a place on this page and nowhere else. */
export function nextOf(query: URLSearchParams): string {
  const next = query.get("next") ?? BASE;
  return next.startsWith(BASE) && !next.includes("\\") ? next : BASE;
}

export function SignIn({ onSignedIn }: { onSignedIn: (next: string) => void }) {
  const [{ path, query }] = useState(address);
  const next = path === SIGN_IN_PATH ? nextOf(query) : path + location.search;
  const [code, setCode] = useState(path === SIGN_IN_PATH ? query.get("code") : null);
  const [token, setToken] = useState("");
  const [provider, setProvider] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);

  const enter = async (body: { code: string } | { token: string }): Promise<void> => {
    try {
      await send("POST", SESSION, body);
      onSignedIn(next);
    } catch (refused) {
      setError(refused as ApiError);
      setCode(null);
    }
  };
  useEffect(() => {
    if (code) void enter({ code });
    get<{ oidc: unknown }>("/v1/sign-in").then((answer) => setProvider(!!answer.oidc), () => {});
  }, []);

  if (code) return <Loading label="Signing in" />;
  return (
    <main class="alone">
      <form class="sign-in" onSubmit={(event) => { event.preventDefault(); void enter({ token: token.trim() }); }}>
        <h1>Sign in to torchyard</h1>
        {error && <ErrorNote error={error} />}
        {provider && <Button kind="primary" href={`/v1/sign-in/page?next=${encodeURIComponent(next)}`}>Sign in with your organisation</Button>}
        <p class="dim">Where you use the command line, this opens the page for you:</p>
        <div class="command command-shell"><code>yard ui</code><Copy text="yard ui" label="Copy the command" /></div>
        <p class="dim">Or paste a token.</p>
        <TextField label="Token" type="password" mono value={token} onInput={setToken} required />
        <Button kind={provider ? "plain" : "primary"} submit disabled={!token.trim()}>Sign in</Button>
      </form>
    </main>
  );
}
