import { readFileSync } from 'node:fs'
import t from 'tap'
import { lockHalves, lockKey } from '../lib/lock-key.js'

interface Vector { name: string, key: string, classid: number, objid: number }

const { keys } = JSON.parse(readFileSync(new URL('fixtures/lock-keys.json', import.meta.url), 'utf8')) as { keys: Vector[] }

t.ok(keys.length >= 11, 'the fixture has its vectors')

for (const { name, key, classid, objid } of keys) {
  t.equal(lockKey(name).toString(), key, `'${name.slice(0, 20)}' has the key that Python's hashlib gives`)
  t.strictSame(lockHalves(BigInt(key)), { classid, objid }, `pg_locks shows '${name.slice(0, 20)}' under these halves`)
}

t.test('halves are unsigned at both ends of the range', async t => {
  t.strictSame(lockHalves(-1n), { classid: 0xffffffff, objid: 0xffffffff })
  t.strictSame(lockHalves(-(2n ** 63n)), { classid: 0x80000000, objid: 0 })
  t.strictSame(lockHalves(2n ** 63n - 1n), { classid: 0x7fffffff, objid: 0xffffffff })
  t.strictSame(lockHalves(0n), { classid: 0, objid: 0 })
})

t.test('a composed and a decomposed accent are two names', async t => {
  t.not(lockKey('na\u00efve'), lockKey('nai\u0308ve'))
})
