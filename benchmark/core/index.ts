/**
 * What the plugin costs, beside what does the same elsewhere, on one database in one run.
 *
 *   npm ci && npm run build && npm ci --prefix benchmark && npm run core --prefix benchmark [-- --only idle,memory,instant,trigger,takeover]
 */
import { cpus, loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { idle } from './idle.js'
import { instant } from './instant.js'
import { memory } from './memory.js'
import { takeover } from './takeover.js'
import { trigger } from './trigger.js'

const sections = { idle, memory, instant, trigger, takeover }
const { values: { only } } = parseArgs({ options: { only: { type: 'string' } } })

console.log(`Node ${process.version}, ${cpus().length} cores (${cpus()[0]!.model.trim()}), load ${loadavg()[0]!.toFixed(2)} at the start`)
for (const [name, measure] of Object.entries(sections)) {
  if (only !== undefined && !only.split(',').includes(name)) continue
  const teardowns: Array<() => unknown> = []
  try {
    console.log(await measure({ teardown: fn => { teardowns.unshift(fn) } }))
  } finally {
    for (const fn of teardowns) await fn()
  }
}
process.exit() // the database's package keeps the process otherwise
