// A real OpenID Connect provider, from npm: `oidc-provider`. People sign in by their name alone.
//
//   node provider.mjs PORT CLIENTS_AND_PEOPLE.json
//
// The file: {"redirect_uri", "client_id", "client_secret", "keys": [JWK…], "people": {name: claims}}
import { readFileSync } from 'node:fs'
import { Provider } from 'oidc-provider'

const port = Number(process.argv[2])
const world = JSON.parse(readFileSync(process.argv[3], 'utf8'))
const people = () => JSON.parse(readFileSync(process.argv[3], 'utf8')).people
const issuer = `http://127.0.0.1:${port}`

const provider = new Provider(issuer, {
  clients: [{
    client_id: world.client_id,
    client_secret: world.client_secret,
    redirect_uris: [world.redirect_uri],
    response_types: ['code'],
    grant_types: ['authorization_code'],
  }],
  jwks: { keys: world.keys },
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email', 'email_verified'] },
  // Claims of scopes stand in the ID token, as most providers do it.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  cookies: { keys: ['for tests'] },
  async findAccount(ctx, id) {
    const claims = people()[id]
    return claims && { accountId: id, claims: async () => ({ sub: id, ...claims }) }
  },
})
provider.listen(port, '127.0.0.1', () => console.log(`listening at ${issuer}`))
