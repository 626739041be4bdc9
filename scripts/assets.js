import { cpSync } from 'node:fs'

// what the dashboard loads is served as it is, and the compiler does not see it
cpSync(new URL('../lib/http/assets', import.meta.url), new URL('../dist/lib/http/assets', import.meta.url), { recursive: true })
