import { setTimeout as rest } from 'node:timers/promises'
import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, launch } from '../helpers/server.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'

const cluster = await startPostgres(t, serverLog)

const cases = [
  { name: 'disabled-closed', title: 'a host app with enabled: false under inject(), then closed', enabled: 'false', close: 'true' },
  { name: 'disabled-left', title: 'a host app with enabled: false under inject(), never closed', enabled: 'false', close: 'false' },
  { name: 'enabled-left', title: 'a host app with its loop on under inject(), never closed', enabled: 'true', close: 'false' }
]

for (const { name, title, enabled, close } of cases) {
  t.test(title, async t => {
    const { exited } = launch(t, 'inject-host.js', { FIXTURE_URL: cluster.url(), FIXTURE_NAME: name, FIXTURE_ENABLED: enabled, FIXTURE_CLOSE: close })
    const ended = await Promise.race([exited, rest(20_000, 'still there', { ref: false })])

    t.strictSame(ended, clean, 'ends by itself')
    const statements = await statementsOf(cluster)
    t.strictSame(statements.filter(line => line.application === name), [], 'has sent no statement')
  })
}
