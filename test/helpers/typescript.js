/** Runs the TypeScript of this repository in tests: `node --import ./test/helpers/typescript.js`. */
import { register } from 'node:module'

register('./typescript-hooks.js', import.meta.url)
