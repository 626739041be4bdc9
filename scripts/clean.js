import { rmSync } from 'node:fs'

// a file that no longer has a source must not be published
rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true })
